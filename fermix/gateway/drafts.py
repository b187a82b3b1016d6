"""A draft in the chat that grows with the answer and becomes it. Made by the replier, one per turn.

One write is in flight at a time, at the channel's pace; the newest text wins. A text that outgrows one message goes
on in a new one. A model's words before a tool call stay as a message of their own. What must stay true: a draft
whose text became nothing is removed. One that the platform may hold under an id nobody knows is found again by its
key; where that cannot be done it is never repeated, and the answer is in doubt.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import TypeVar

from fermix.agent.model import Delta
from fermix.clock import Clock
from fermix.errors import ChannelUnavailable, FermixError
from fermix.gateway.background import background
from fermix.gateway.channel import Abilities, Drafts
from fermix.gateway.leaks import is_cancelled
from fermix.gateway.stream import Announce, Items, Note, Reader
from fermix.gateway.text import Piece, pieces
from fermix.message import Message

log = logging.getLogger(__name__)

T = TypeVar("T")

OPENS_AT_CHARS = 30
MOST_WRITES = 300
MOST_FAILURES = 2  # in a row; then the preview freezes and only the end is written
TRIES = 3  # of the seal and of each removal
RETRY_S = 0.4  # times the number of the try, unless the platform names a time
LONGEST_WAIT_S = 300.0  # of one seal or removal: TGM-23 saw a platform ask for 249 s
CALL_S = 15.0


class DraftStream:
    """A `Stream` that edits."""

    def __init__(self, reader: Reader, drafts: Drafts, clock: Clock, note: Note, announce: Announce) -> None:
        self.doubtful = False
        self._announce = announce
        self._room = reader.room
        self._chat = _Chat(reader, drafts, clock)
        self._note = note
        self._items = Items()
        self._offset = 0  # how much of the text at hand stands in full bubbles
        self._full: list[str] = []  # those bubbles
        self._kept: list[str] = []  # the bubbles of earlier texts
        self._live: str | None = None
        self._shown = ""
        self._doomed: list[str] = []
        self._final: Sequence[str] = ()
        self._writes = 0
        self._failures = 0
        self._frozen = False
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()

    # While the turn runs.

    def running(self) -> AbstractAsyncContextManager[None]:
        return background(self._pump(), "draft")

    def show(self, delta: Delta) -> None:
        if self._items.add(delta):
            self._news.set()

    async def _pump(self) -> None:
        while not self._frozen:
            await self._news.wait()
            await self._chat.pace()
            self._news.clear()
            async with self._writing:
                if not self._frozen and await self._guarded_step():
                    self._news.set()

    async def _guarded_step(self) -> bool:
        try:
            return await self._step()
        except Exception:
            log.exception("an answer can no longer be shown while it is written")
            self._frozen = True
            return False

    async def _step(self) -> bool:
        """Write what is newest; returns whether there is more to do at once."""
        text, is_over = self._items.text, not self._items.is_last
        piece = next(pieces(text, self._room.limit, self._room.measure, self._offset), Piece("", ""))
        overflows = self._offset + len(piece.source) < len(text)
        if self._is_too_short(piece, overflows=overflows, is_over=is_over):
            return is_over and self._next_item()
        if piece.text.strip() and piece.text.rstrip() != self._shown:
            await self._write(piece.text.rstrip())
            return True
        if overflows:
            self._go_past(piece)
            return True
        return is_over and self._next_item()

    def _is_too_short(self, piece: Piece, *, overflows: bool, is_over: bool) -> bool:
        """Tell whether a bubble is not worth opening, or not yet; the end of words shown so far always is."""
        ends_what_was_shown = is_over and self._offset > 0
        short = len(piece.text.strip()) < OPENS_AT_CHARS
        return self._live is None and short and not overflows and not ends_what_was_shown

    async def _write(self, text: str) -> None:
        self._writes += 1
        key = uuid.uuid4().hex
        try:
            if self._live is None:
                await self._announce(key, (*self._kept, *self._full, *self._doomed))
                self._live = await self._chat.open(text, key)
                self._tell()
            else:
                await self._chat.edit(self._live, text)
            self._shown, self._failures = text, 0
        except ChannelUnavailable as error:
            log.info("a draft could not be written: %s", error)
            self._failures += error.retry_after_s is None
            await self._judge(text, key, landed=error.landed)
        except FermixError as error:
            log.info("a draft cannot be written down; the answer comes whole: %s", error)
            self._frozen = True
        if self._writes >= MOST_WRITES or self._failures >= MOST_FAILURES:
            self._frozen = True

    async def _judge(self, text: str, key: str, *, landed: bool) -> None:
        """Take in what a failed write left: unknown is what a draft shows after an edit, or the id of a new one."""
        if self._live is not None:
            self._shown = "" if landed else self._shown
            return
        try:
            self._live = await self._chat.find(text, key) if landed else None
        except ChannelUnavailable as error:
            log.warning("a draft may be left in a chat: %s", error)
            self._frozen = self.doubtful = True
        else:
            self._tell()

    def _go_past(self, piece: Piece) -> None:
        """The bubble is full: the text goes on in a new one. Blanks fill none, whatever it shows by now."""
        self._offset += len(piece.source)
        if piece.text.strip():
            self._turn_over()

    def _turn_over(self) -> None:
        if self._live is not None:
            self._full.append(self._live)
        self._live, self._shown = None, ""

    def _next_item(self) -> bool:
        self._turn_over()
        self._kept += self._full
        self._full, self._offset = [], 0
        self._items.go_on()
        return True

    def _tell(self) -> None:
        self._note(self._live, (*self._kept, *self._full, *self._doomed))

    # At its end.

    async def finish(self, text: str) -> Sequence[str]:
        async with self._writing:
            self._frozen = True
        if not self._items.is_last:  # the draft shows earlier words still: it becomes the answer
            self._kept += self._full
            self._full, self._offset = [], 0
        elif not text.startswith(self._items.text[: self._offset]):
            self._doom(self._full)
            self._doom_live()
            self._full, self._offset = [], 0
        found = pieces(text, self._room.limit, self._room.measure, self._offset)
        self._final = [piece.text.rstrip() for piece in found if piece.text.strip()]
        if not self._final:
            self._doom_live()
        return self._final

    @property
    def seals(self) -> bool:
        return self._live is not None and bool(self._final)

    async def seal(self) -> str | None:
        if self._live is None or not self._final:
            return None
        sealed = self._live
        if self._final[0] != self._shown and not await self._chat.patiently_edit(sealed, self._final[0]):
            await self._give_up_seal(sealed)
            return None
        self._live = None
        return sealed

    async def _give_up_seal(self, sealed: str) -> None:
        """A draft that may show the answer already goes before the answer is sent; one that stays makes it doubtful."""
        if not self._chat.may_be_sealed:
            self._doom_live()
        elif await self._chat.patiently_discard(sealed):
            self._live = None
            self._tell()
        elif not self._chat.left:  # the next start tries again, and marks the answer if it must
            self.doubtful = True
            self._live = None

    async def sweep(self) -> None:
        for bubble in self._doomed:
            await self._chat.patiently_discard(bubble)
        if not self._chat.left:
            self._note(None, ())
        self._doomed = []

    async def abandon(self) -> None:
        async with self._writing:
            self._frozen = True
        self._doom(self._full)
        self._doom_live()
        await self.sweep()

    def stop(self) -> None:
        self._frozen = True
        self._chat.stop()

    def leave(self) -> None:
        self._frozen = True
        self._chat.leave()

    def _doom(self, bubbles: Sequence[str]) -> None:
        self._doomed += bubbles

    def _doom_live(self) -> None:
        if self._live is not None:
            self._doom([self._live])
        self._live, self._shown = None, ""


class _Chat:
    """The platform's side: its pace, its cooldown, and an end to every wait."""

    def __init__(self, reader: Reader, drafts: Drafts, clock: Clock) -> None:
        self._message = reader.message
        self._drafts = drafts
        self._abilities = reader.channel.abilities
        self._clock = clock
        self._paced_at = 0.0  # when the next write is due
        self._cooled_at = 0.0  # when the platform wants to hear of us again
        self._stopped = False
        self.left = False
        self.may_be_sealed = False  # whether an edit to the final text may have landed although none was confirmed
        self._pause: asyncio.Timeout | None = None
        self._call: asyncio.Timeout | None = None

    async def open(self, text: str, key: str) -> str:
        return await self._write(self._drafts.open(self._message, text, key))

    async def find(self, text: str, key: str) -> str | None:
        """Find a draft whose opening got no answer; None when it did not land. Not ended by a stop.

        Raises: ChannelUnavailable when nobody can tell.
        """
        for tried in range(1, TRIES + 1):
            if not await self._wait(tried, self._has_left) or self.left:
                break
            try:
                return await self._bounded(find_draft(self._abilities, self._message, text, key))
            except ChannelUnavailable as error:
                log.info("a draft cannot be found again: %s", error)
        raise ChannelUnavailable("nobody knows whether it was opened", landed=True)

    async def edit(self, draft: str, text: str) -> None:
        await self._write(self._drafts.edit(self._message, draft, text))

    async def patiently_edit(self, draft: str, text: str) -> bool:
        """Edit with a bounded number of tries; False when that failed, or when a stop came."""
        await self._sleep_until(self._paced_at, self._has_stopped)
        for tried in range(1, TRIES + 1):
            if not await self._wait(tried, self._has_stopped) or self._stopped:
                return False
            try:
                await self.edit(draft, text)
            except ChannelUnavailable as error:
                self.may_be_sealed |= error.landed
                log.info("a draft could not be sealed: %s", error)
            else:
                return True
        return False

    async def patiently_discard(self, draft: str) -> bool:
        """Remove a bubble with a bounded number of tries, False when that failed; not held to the pace of edits."""
        for tried in range(1, TRIES + 1):
            if not await self._wait(tried, self._has_left) or self.left:
                break
            try:
                await self._bounded(self._drafts.discard(self._message, draft))
            except ChannelUnavailable as error:
                log.info("a draft could not be removed: %s", error)
            else:
                return True
        log.warning("a draft is left in a chat of %s", self._message.channel)
        return False

    async def pace(self) -> None:
        """Wait until the next write is due and welcome."""
        await self._sleep_until(max(self._paced_at, self._cooled_at), self._has_stopped)

    def stop(self) -> None:
        self._stopped = True
        _end_now(self._pause)

    def leave(self) -> None:
        self.left = True
        self.stop()
        _end_now(self._call)

    def _has_stopped(self) -> bool:
        return self._stopped

    def _has_left(self) -> bool:
        return self.left

    async def _wait(self, tried: int, ends: Callable[[], bool]) -> bool:
        """Wait before a try as the platform asked, or a little more each time; False when that is too long."""
        due_at = max(self._cooled_at, self._clock.monotonic() + RETRY_S * (tried - 1))
        if due_at - self._clock.monotonic() > LONGEST_WAIT_S:
            return False
        await self._sleep_until(due_at, ends)
        return True

    async def _sleep_until(self, due_at: float, ends: Callable[[], bool]) -> None:
        while not ends() and (wait_s := due_at - self._clock.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(None) as self._pause:
                    await self._clock.sleep(wait_s)
        self._pause = None

    async def _write(self, call: Awaitable[T]) -> T:
        try:
            return await self._bounded(call)
        finally:
            self._paced_at = self._clock.monotonic() + self._drafts.edit_interval_s

    async def _bounded(self, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(CALL_S) as self._call:
                return await call
        except TimeoutError as error:
            raise ChannelUnavailable(f"no answer within {CALL_S:g} s", landed=True) from error
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise ChannelUnavailable("the call broke off by itself", landed=True) from error
        except ChannelUnavailable as error:
            self._cooled_at = max(self._cooled_at, self._clock.monotonic() + (error.retry_after_s or 0.0))
            raise
        except FermixError as error:
            raise ChannelUnavailable(str(error)) from error
        except Exception as error:  # an adapter's bug ends neither the turn nor the daemon
            log.exception("channel %s broke in a draft", self._message.channel)
            raise ChannelUnavailable(f"the channel broke: {error!r}", landed=True) from error
        finally:
            self._call = None


async def find_draft(abilities: Abilities, message: Message, text: str, key: str) -> str | None:
    """Return the id of the draft that was opened with this key, None when there is none.

    Where only a repetition tells, it is opened now if it was not. Raises: ChannelUnavailable when nobody can tell.
    """
    if abilities.lookup is not None:
        return await abilities.lookup.find(message, key)
    if abilities.idempotent and abilities.drafts is not None:
        return await abilities.drafts.open(message, text, key)
    raise ChannelUnavailable("this channel cannot tell", landed=True)


def _end_now(wait: asyncio.Timeout | None) -> None:
    if wait is not None and not wait.expired():
        wait.reschedule(asyncio.get_running_loop().time())
