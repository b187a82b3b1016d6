"""What waits for the owner's yes. One service for everything that must be asked; it knows nothing of what it guards.

A request holds all that will be done as text and a seal, a hash over exactly that. An answer is looked up, checked
(who, where, in time) and only then taken, all in one step of the event loop, so a wrong answer burns nothing and a
race has one winner. `put` lets whoever asked go on, `wait_for` keeps a turn until it is answered. Everything is in
memory: a restart means no.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

from fermix.clock import Clock
from fermix.errors import LimitReached, Refused
from fermix.message import ApprovalPrompt, Message

log = logging.getLogger(__name__)

LIFETIME_S = 60.0
REMEMBERED_S = 600.0  # so long a late answer is told that it is late
MOST = 100  # waiting at once, over all conversations
MOST_TEXT_CHARS = 3_000  # what every channel shows in one message; a longer question is refused, never cut
RUNNING = "Running it now."

Rejected = Literal["unknown", "late", "elsewhere"]
Answer = Literal["yes", "no", "late"]
Resume = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """Something that needs a yes. `text` shows all of it as Markdown, foreign characters spelled out.

    `carry_out` gets the seal, makes out afresh what would be done now, refuses when that is something else, and
    returns what to tell the owner. `refused` hears of a no; `waits` says that a turn stands still until then.
    """

    text: str
    seal: str
    carry_out: Callable[[str], Awaitable[str]]
    refused: Callable[[], None] = lambda: None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request was raised and by whom."""

    channel: str
    chat_id: str
    thread: str
    user_id: str

    @classmethod
    def of(cls, message: Message) -> Origin:
        return cls(message.channel, message.chat_id, message.thread, (message.sender.id or "").strip())


@dataclass(frozen=True, slots=True)
class Seam:
    """What the gateway attaches to an operator's turn, so that it can ask: the place an answer is bound to, whether
    others read that chat, how the message runs again after a yes (None where it cannot), and what the owner is then
    told about that.
    """

    origin: Origin
    shared: bool
    resume: Resume | None = None
    after_yes: str = ""


@dataclass(frozen=True, slots=True)
class Pending:
    """A request that was put to the owner. `prompt.token` works at its origin only."""

    prompt: ApprovalPrompt
    request: ApprovalRequest
    seam: Seam
    expires_at: float


class Approvals:
    """Owner of what waits. Used from the loop's thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[str, Pending] = {}

    async def put(
        self, request: ApprovalRequest, seam: Seam, send: Callable[[ApprovalPrompt], Awaitable[None]]
    ) -> bool:
        """Ask, and show it with `send`; False when the same question still waits there and is not asked again.

        Raises: LimitReached when too many wait; what `send` raises, and then nothing waits.
        """
        pending, new = self._ask(request, seam)
        if new:
            await self._show(pending, send)
        return new

    async def wait_for(
        self, text: str, seal: str, seam: Seam, send: Callable[[ApprovalPrompt], Awaitable[None]]
    ) -> Answer:
        """Ask, and wait for the answer as long as it can be given. `seal` is of this one wait, never of two.

        Whatever ends the wait, nothing stays behind that could be answered. Raises: as `put`.
        """
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        async def carry_out(_seal: str) -> str:
            if answered.done():
                raise Refused("nobody waits for it", user_text="It is too late for that, so nothing was done.")
            answered.set_result("yes")
            return RUNNING

        def refused() -> None:
            if not answered.done():
                answered.set_result("no")

        request = ApprovalRequest(text, seal, carry_out, refused, waits=True)
        pending, _ = self._ask(request, replace(seam, resume=None, after_yes=""))
        await self._show(pending, send)
        try:
            await self._answered_in_time(answered, pending)
        finally:
            answered.cancel()
            if self._clock.monotonic() < pending.expires_at:  # past that it stays, so that an answer is told it is late
                self._pending.pop(pending.prompt.id, None)
        return "late" if answered.cancelled() else answered.result()

    async def _answered_in_time(self, answered: asyncio.Future[Answer], pending: Pending) -> None:
        left_s = pending.expires_at - self._clock.monotonic()
        if left_s <= 0:  # showing it took that long
            return
        async with asyncio.TaskGroup() as group:
            timer = group.create_task(self._clock.sleep(left_s), name=f"approval {pending.prompt.id}")
            await asyncio.wait((answered, timer), return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()

    async def _show(self, pending: Pending, send: Callable[[ApprovalPrompt], Awaitable[None]]) -> None:
        try:
            await send(pending.prompt)
        except BaseException:
            self._pending.pop(pending.prompt.id, None)
            raise

    def take(self, code: str, answer: Message, *, local: bool) -> Pending | Rejected:
        """Take what a code stands for, once. `answer` is the operator's message that holds it; `local` says that it
        was typed on this machine.
        """
        pending = self._find(code.strip())
        if pending is None:
            return "unknown"
        if not _may_answer(pending, code.strip(), answer, local=local):
            return "elsewhere"
        if self._clock.monotonic() >= pending.expires_at:
            return "late"
        del self._pending[pending.prompt.id]
        return pending

    def _ask(self, request: ApprovalRequest, seam: Seam) -> tuple[Pending, bool]:
        self._forget_old()
        now = self._clock.monotonic()
        live = [pending for pending in self._pending.values() if now < pending.expires_at]
        for pending in live:
            if (pending.seam.origin, pending.request.seal) == (seam.origin, request.seal):
                return pending, False
        if len(live) >= MOST:
            problem = "too many questions wait for an answer"
            raise LimitReached(problem, limit="approvals", user_text=f"{problem}; try again in a minute")
        prompt = ApprovalPrompt(secrets.token_hex(6), request.text, _token(), request.waits)
        pending = self._pending[prompt.id] = Pending(prompt, request, seam, now + LIFETIME_S)
        log.info("approval %s asked on channel %r", prompt.id, seam.origin.channel)
        return pending, True

    def _find(self, code: str) -> Pending | None:
        if (named := self._pending.get(code.lower())) is not None:
            return named
        stated = code.upper().encode("utf-8", "replace")
        return next((pending for pending in self._pending.values() if _same(pending.prompt.token, stated)), None)

    def _forget_old(self) -> None:
        before = self._clock.monotonic() - REMEMBERED_S
        for prompt_id in [name for name, pending in self._pending.items() if pending.expires_at < before]:
            del self._pending[prompt_id]


def _may_answer(pending: Pending, code: str, answer: Message, *, local: bool) -> bool:
    """The token counts where the question stands, and so does its button. A question put into a shared chat may also
    be answered by its id from the owner's own chat with us, or from this machine.
    """
    asked, here = pending.seam.origin, Origin.of(answer)
    by_id = code.lower() == pending.prompt.id
    if here == asked:
        return not by_id or answer.kind == "button"
    if not by_id or not pending.seam.shared:
        return False
    own_chat = answer.private and (here.channel, here.user_id) == (asked.channel, asked.user_id)
    return local or own_chat


def _same(token: str, stated: bytes) -> bool:
    """Compare in a time that does not tell how much of it is right."""
    return secrets.compare_digest(token.encode("ascii"), stated)


def _token() -> str:
    """Eight characters that are easily typed; 40 bits that live for a minute."""
    return base64.b32encode(secrets.token_bytes(5)).decode("ascii")
