"""One turn in its order: snapshot, history, prompt, the user's message stored, loop, outcome.

Called by the agent. The reply is not stored here: it is delivered first and committed afterwards. Whatever fails on
purpose becomes `Failed` with a sentence for the sender; cancellation passes through; the two bookends always come.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol, assert_never

from fermix.agent.compaction.compactor import Compactor, SummedUp
from fermix.agent.context import Profile, RuntimeContext
from fermix.agent.dispatch import Dispatcher, ToolScope
from fermix.agent.exposure import Exposure
from fermix.agent.loop import LoopServices, Shorten, run_loop
from fermix.agent.model import ChatMessage, ChatRequest, Image, UserMessage
from fermix.agent.prompt import date_note
from fermix.agent.results import OUTPUT_CHARS
from fermix.agent.risk import exposure_at_start
from fermix.agent.sentences import APOLOGY, sentence_for
from fermix.agent.turn import Cancelled, Completed, Failed, ReplyPort, Turn, TurnOutcome
from fermix.agent.window import Fitted, fit
from fermix.clock import Clock
from fermix.errors import FermixError, LimitReached
from fermix.events import Events, HistoryTrimmed, TurnEnded, TurnStarted
from fermix.message import ConversationKey, Message
from fermix.trust import Trust

log = logging.getLogger(__name__)


class History(SummedUp, Protocol):
    """The conversations. What `history` returns can always be sent; a write for an older `version` is dropped."""

    async def history(self, key: ConversationKey, *, before: int | None = None) -> tuple[ChatMessage, ...]: ...

    async def append(
        self,
        key: ConversationKey,
        *items: ChatMessage,
        sender: str = "",
        model: str = "",
        guest: bool = False,
        outside: bool = False,
        version: int | None = None,
        ledger_id: int | None = None,
    ) -> bool: ...

    async def session_of(self, ledger_id: int) -> int | None: ...

    async def close_dangling(self, key: ConversationKey, note: str, told: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class RunnerServices:
    """What every turn uses. `checkout` gives the snapshot that the turn keeps."""

    checkout: Callable[[], Awaitable[RuntimeContext]]
    history: History
    compactor: Compactor
    dispatcher: Dispatcher
    events: Events
    clock: Clock


class TurnRunner:
    """Runs turns; holds nothing between them."""

    def __init__(self, services: RunnerServices) -> None:
        self._services = services

    async def run(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        """Run one turn to its outcome."""
        services = self._services
        services.events.emit(TurnStarted(turn.key, turn.id, turn.message.id))
        began_at = services.clock.monotonic()
        outcome: TurnOutcome = Failed(APOLOGY, "the turn broke")
        try:
            outcome = await self._outcome(turn, port)
        except asyncio.CancelledError:
            outcome = Cancelled()
            raise
        finally:
            services.events.emit(_ended(turn, outcome, services.clock.monotonic() - began_at))
        return outcome

    async def _outcome(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        bound = asyncio.timeout(turn.deadline_s)
        try:
            async with bound:
                return await self._answer(turn, port)
        except TimeoutError:
            if not bound.expired():
                raise
            return _failed(turn, LimitReached(f"no answer within {turn.deadline_s:g} s", limit="turn_seconds"))
        except FermixError as error:
            return _failed(turn, error)

    async def _answer(self, turn: Turn, port: ReplyPort) -> Completed:
        context = await self._services.checkout()
        profile = context.profile(turn.trust, may_ask=turn.may_ask, way_back=turn.way_back)
        history = self._services.history
        question = question_of(turn.message)
        version = await history.version(turn.key)
        fitted = await self._fitted(turn, context, profile, question)
        request = self._request(turn, context, profile, fitted)
        await store_question(history, turn, version)
        exposure = exposure_at_start(question.text, request.messages, profile.tools)
        services = LoopServices(
            context.router, self._services.dispatcher, self._services.events, self._services.clock,
            self._shorten(turn, profile, exposure),
        )  # fmt: skip
        output_chars = min(OUTPUT_CHARS, context.facts.context_tokens)
        scope = ToolScope(profile.tools, turn, port, output_chars, exposure)
        return replace(await run_loop(services, scope, request), history_version=version)

    async def _fitted(self, turn: Turn, context: RuntimeContext, profile: Profile, question: UserMessage) -> Fitted:
        """Return the history that fits beside the question, summed up before when that is due."""

        async def look() -> Fitted:
            earlier = await self._services.history.history(turn.key, before=turn.ledger_id)
            return fit(earlier, question, fixed_tokens=profile.fixed_tokens, facts=context.facts, route=context.route)

        fitted = await look()
        changed = await self._services.compactor.before_turn(turn.key, fits=not fitted.dropped)
        return await look() if changed else fitted

    def _shorten(self, turn: Turn, profile: Profile, exposure: Exposure) -> Shorten:
        """Return what sums up the history before this turn when a provider refuses the request."""
        tries = count(1)

        async def shorten() -> Sequence[ChatMessage] | None:
            if turn.ledger_id is None or not await self._services.compactor.refused(turn.key, next(tries)):
                return None
            earlier = await self._services.history.history(turn.key, before=turn.ledger_id)
            now = exposure_at_start("", earlier, profile.tools)
            exposure.earlier |= now.earlier
            exposure.local_earlier |= now.local_earlier
            return earlier

        return shorten

    def _request(self, turn: Turn, context: RuntimeContext, profile: Profile, fitted: Fitted) -> ChatRequest:
        if fitted.dropped:
            kept = len(fitted.messages) - 1
            self._services.events.emit(HistoryTrimmed(turn.key, turn.id, fitted.dropped, kept))
        today = date_note(self._services.clock.now(), context.timezone)
        return ChatRequest((*profile.system, today), fitted.messages, profile.schemas)


async def store_question(history: History, turn: Turn, version: int | None) -> None:
    """Add the message to the history, unless it is there from a first run."""
    await history.append(
        turn.key,
        question_of(turn.message),
        sender=turn.message.sender.id or "",
        guest=turn.trust is not Trust.OPERATOR,
        version=version,
        ledger_id=turn.ledger_id,
    )


def question_of(message: Message) -> UserMessage:
    """Return what the model reads of a message."""
    pictures = tuple(Image(media.mime, media.data) for media in message.media if media.kind == "image")
    return UserMessage(message.text, pictures)


def _failed(turn: Turn, error: FermixError) -> Failed:
    log.warning("turn %s failed: %s", turn.id, error)
    return Failed(sentence_for(error, turn.trust), str(error))


def _ended(turn: Turn, outcome: TurnOutcome, duration_s: float) -> TurnEnded:
    match outcome:
        case Completed():
            return TurnEnded(turn.key, turn.id, turn.message.id, "completed", duration_s, outcome.steps)
        case Cancelled():
            return TurnEnded(turn.key, turn.id, turn.message.id, "cancelled", duration_s)
        case Failed():
            return TurnEnded(turn.key, turn.id, turn.message.id, "failed", duration_s, error=outcome.reason)
        case _:
            assert_never(outcome)
