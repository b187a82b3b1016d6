"""Sum up the older part of a conversation: before a turn, after one, when a provider refuses a request, on a wish.

Made by the agent, which runs it as a service for what comes after a turn. What must stay true: no reply waits for it
but by a bound; a failure changes nothing, and nothing is tried again by itself for a minute; what is summed up stays on
disk; a summary that is not shorter than what it stands for is a failure.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from fermix.agent.compaction.parts import chunks, history_tokens, holds_words_of_others, older
from fermix.agent.compaction.settings import CompactionSettings
from fermix.agent.compaction.summary import Summary, first_of, shortest, summary_request
from fermix.agent.loop import ModelRouter
from fermix.agent.memory import Row
from fermix.agent.outgoing import outgoing
from fermix.agent.providers.provider import ModelFacts
from fermix.agent.turn import RequestSize
from fermix.agent.window import request_tokens
from fermix.clock import Clock
from fermix.errors import FermixError, LimitReached, NeedsOperator, Unusable
from fermix.events import CompactionTrigger, ConversationCompacted, Events
from fermix.message import ConversationKey

log = logging.getLogger(__name__)

T = TypeVar("T")

BACKOFF_S = 60.0  # reference 4, section 1.6
BEFORE_TURN_S = 90.0  # what a person waits for longer than for the answer itself
ASKED_S = 300.0  # what comes into the conversation meanwhile waits behind the wish
ROUND_S = 300.0  # one model call with its retries and fallbacks
MOST_ROUNDS = 10  # of one time; the next one goes on
MOST_REMEMBERED = 1_000  # conversations whose last size is known


class SummedUp(Protocol):
    """The conversations, as far as they are needed here."""

    async def version(self, key: ConversationKey) -> int: ...

    async def rows(self, key: ConversationKey) -> tuple[Row, ...]: ...

    async def sum_up(
        self, key: ConversationKey, old: Sequence[Row], text: str, *, outside: bool, model: str, version: int
    ) -> bool: ...


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done. Tokens are those of the history by estimate; `peak` is the last turn's largest request."""

    covered: int
    before_tokens: int
    after_tokens: int
    rounds: int
    peak: RequestSize


class Compactor:
    """A service; the other methods are for its owner."""

    name = "compaction"

    def __init__(
        self, history: SummedUp, events: Events, clock: Clock, router: ModelRouter, settings: CompactionSettings
    ) -> None:
        self._history = history
        self._events = events
        self._clock = clock
        self._router = router
        self._settings = settings
        self._peaks: OrderedDict[ConversationKey, RequestSize] = OrderedDict()
        self._failed_at: OrderedDict[ConversationKey, float] = OrderedDict()
        self._running: dict[ConversationKey, asyncio.Event] = {}
        self._waiting: OrderedDict[ConversationKey, None] = OrderedDict()
        self._arrived = asyncio.Event()

    def use(self, router: ModelRouter, settings: CompactionSettings) -> None:
        """Take what a new configuration brought."""
        self._router, self._settings = router, settings

    async def run(self, started: Callable[[], None]) -> None:
        started()
        while True:
            while self._waiting:
                key, _ = self._waiting.popitem(last=False)
                await self._by_itself(key, "after", self._keep_tokens())
            self._arrived.clear()
            await self._arrived.wait()

    def delivered(self, key: ConversationKey, peak: RequestSize) -> None:
        """Note how large a turn's requests became; what is over the threshold is summed up soon."""
        _note(self._peaks, key, peak)
        if self._is_due(key):
            self._waiting[key] = None
            self._arrived.set()

    async def before_turn(self, key: ConversationKey, *, fits: bool) -> bool:
        """Make the history shorter if the last turn came near the window, or if not all of it `fits`.

        Returns whether it may have changed. Never raises what was foreseen, and takes a bounded time.
        """
        going_on = self._running.get(key)
        if self._backs_off(key) or (going_on is None and fits and not self._is_due(key)):
            return False
        try:
            async with asyncio.timeout(BEFORE_TURN_S):
                if going_on is not None:
                    await going_on.wait()
                else:
                    await self._by_itself(key, "before", self._keep_tokens())
        except TimeoutError:
            log.warning("a turn does not wait any longer for a summary: %s", key.channel)
            _note(self._failed_at, key, self._clock.monotonic())
        return True

    async def refused(self, key: ConversationKey, tried: int) -> bool:
        """Make the history shorter after a provider found a request too long: more so each time."""
        return await self._by_itself(key, "refused", self._keep_tokens() // 4**tried, patient=False)

    async def asked(self, key: ConversationKey) -> Compacted:
        """Do it because somebody wishes it. Raises: FermixError with a sentence for the sender."""
        try:
            async with asyncio.timeout(ASKED_S):
                return await self._compact(key, "asked", self._keep_tokens() // 2)
        except TimeoutError as error:
            raise LimitReached(
                f"not summed up within {ASKED_S:g} s",
                limit="summary_seconds",
                user_text="Summing up takes too long, so nothing was changed. Try it again later.",
            ) from error

    def _is_due(self, key: ConversationKey) -> bool:
        peak = self._peaks.get(key)
        if peak is None or not self._settings.enabled or not self._router.routes:
            return False
        return peak.tokens >= self._settings.threshold * self._facts().context_tokens

    def _facts(self) -> ModelFacts:
        if not self._router.routes:
            raise NeedsOperator("no model is configured", advice="run `fermix setup`")
        return self._router.routes[0].facts

    def _keep_tokens(self) -> int:
        """Half of what a history may be afterwards, which is half of what a request may be."""
        return request_tokens(self._facts()) // 4 if self._router.routes else 0

    async def _by_itself(
        self, key: ConversationKey, trigger: CompactionTrigger, keep_tokens: int, *, patient: bool = True
    ) -> bool:
        """Do it unless it failed a moment ago, and tell failures to the log only."""
        if patient and (self._backs_off(key) or not self._settings.enabled):
            return False
        try:
            await self._compact(key, trigger, keep_tokens)
        except FermixError as error:
            log.warning("a conversation was not summed up: %s", error)
            _note(self._failed_at, key, self._clock.monotonic())
            return False
        return True

    def _backs_off(self, key: ConversationKey) -> bool:
        failed_at = self._failed_at.get(key)
        return failed_at is not None and self._clock.monotonic() - failed_at < BACKOFF_S

    async def _compact(self, key: ConversationKey, trigger: CompactionTrigger, keep_tokens: int) -> Compacted:
        told = ConversationCompacted(key, trigger, error="it was stopped")
        try:
            async with self._alone(key):
                done = await self._sum_up(key, keep_tokens)
            told = _told(key, trigger, done)
        except FermixError as error:
            told = replace(told, error=str(error))
            raise
        finally:
            self._events.emit(told)
        return done

    @asynccontextmanager
    async def _alone(self, key: ConversationKey) -> AsyncGenerator[None]:
        """Let one at a time work on a conversation; others wait."""
        while (going_on := self._running.get(key)) is not None:
            await going_on.wait()
        self._running[key] = done = asyncio.Event()
        try:
            yield
        finally:
            del self._running[key]
            done.set()

    async def _sum_up(self, key: ConversationKey, keep_tokens: int) -> Compacted:
        facts, version = self._facts(), await self._history.version(key)
        rows = await self._history.rows(key)
        before = history_tokens(rows)
        old = older(rows, min(keep_tokens, before // 2))  # an estimate may be far below what a provider counts
        if not old:
            raise Unusable("nothing to sum up", user_text="There is nothing older to sum up in this conversation.")
        summary = await self._summarise(key, old, facts)
        covered = shortest(summary.rows, summary.text)
        # `old` and not `covered`: the text may be made of more rows than it stands for
        if not await self._history.sum_up(
            key, covered, summary.text, outside=holds_words_of_others(old), model=summary.model, version=version
        ):
            raise Unusable("the conversation changed", user_text="The conversation changed meanwhile. Try it again.")
        after = history_tokens(await self._history.rows(key))
        peak = self._peaks.pop(key, RequestSize())
        return Compacted(len(covered), before, after, summary.rounds, peak)

    async def _summarise(self, key: ConversationKey, old: Sequence[Row], facts: ModelFacts) -> Summary:
        """Ask the model, a part of the rows at a time, each with the summary of those before it."""
        room, done = request_tokens(facts) // 2, Summary()
        for rows, text in chunks(old, room * 2):  # about two characters a token, whatever the script
            if done.rounds == MOST_ROUNDS:
                return first_of(done, old)
            wanted = min(max(room // 4, 64), 2_048, facts.max_output_tokens)
            thoughts = min(4 * wanted, facts.max_output_tokens)  # of a model that thinks first, with the summary
            request = summary_request(done.text, text, wanted, thoughts)
            try:
                async with asyncio.timeout(ROUND_S):
                    answer = await self._router.complete(
                        request, _ignored, turn_id=f"summary {uuid.uuid4().hex}", purpose="compaction", key=key
                    )
            except TimeoutError as error:
                raise LimitReached(f"no summary within {ROUND_S:g} s", limit="summary_seconds") from error
            said = outgoing(answer.text).text.strip()
            if not said or answer.finish != "stop":  # CTX-09: half a summary is none
                raise Unusable(
                    f"no whole summary, it ended with {answer.finish}",
                    user_text="The model gave no whole summary, so nothing was changed. Try it again.",
                )
            done = Summary(said, (*done.rows, *rows), done.rounds + 1, f"{answer.provider}/{answer.model}")
        return done


def _note(table: OrderedDict[ConversationKey, T], key: ConversationKey, value: T) -> None:
    table[key] = value
    table.move_to_end(key)
    if len(table) > MOST_REMEMBERED:
        table.popitem(last=False)


def _ignored(_delta: object) -> None:
    """Nobody watches a summary being written."""


def _told(key: ConversationKey, trigger: CompactionTrigger, done: Compacted) -> ConversationCompacted:
    return ConversationCompacted(
        key, trigger, done.covered, done.before_tokens, done.after_tokens, done.rounds, measured=done.peak.measured
    )
