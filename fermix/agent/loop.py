"""The bounded model and tool loop of one turn: ask the model, answer each call in order, until it answers in text.

Called by the runner with a request that is complete and a scope that is fixed. What must stay true: every call of
a message is answered by exactly one result, also when it is unknown, unusable, skipped or stopped; nothing of a
turn starts after its cancellation; every ending other than an answer is an exception that names its reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fermix.agent.capability import CHANNEL
from fermix.agent.deferral import unwrapped
from fermix.agent.dispatch import Dispatcher, ToolScope
from fermix.agent.guard import LoopGuard, Verdict
from fermix.agent.markers import WORDLESS
from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    Completion,
    Delta,
    Purpose,
    TextDelta,
    ToolCall,
    ToolMessage,
    Usage,
)
from fermix.agent.outgoing import Veil, outgoing
from fermix.agent.providers.provider import ErrorKind, ModelFacts, OnDelta, Provider, ProviderFailed, Route
from fermix.agent.transcript import Transcript
from fermix.agent.turn import Completed, RequestSize
from fermix.clock import Clock
from fermix.errors import FermixError, LimitReached, Unusable
from fermix.events import Events, ModelCalled
from fermix.message import ConversationKey

log = logging.getLogger(__name__)

MOST_SHORTENED = 3  # times that a turn's history is summed up because a provider refuses the request
MAX_STEPS = 100  # a system knob, not a config section: Architecture, message-to-reply, step 6
STEP_DEADLINE_S = 900.0  # one model call with its retries and fallbacks; each tool has its own bound

REPEATED = (
    "[Fermix: this call was made several times with the same arguments and will not give more. "
    "Do something else, or answer now.]"
)
LOOPING = "the same call was made too often in a row"
NO_STEPS_LEFT = "the step limit was reached"
STOPPED = "the turn ended"
ONE_A_STEP = "only one thing is sent to the chat in a step; call this again in the next one"
CUT_OFF = "_(cut off at the model's output limit; ask it to continue)_"


class ModelRouter(Protocol):
    """The chain of routes, the first one first. `current` is where the next call goes, None when nowhere."""

    @property
    def routes(self) -> tuple[Provider, ...]: ...

    @property
    def current(self) -> Route | None: ...

    async def complete(
        self,
        request: ChatRequest,
        on_delta: OnDelta,
        *,
        turn_id: str,
        purpose: Purpose = "turn",
        key: ConversationKey | None = None,
    ) -> Completion:
        """Get one answer. `key` is the conversation it is booked to."""
        ...


class Declined(Unusable):
    """A model refused to answer and gave no words of its own."""

    def __init__(self, provider: str, model: str) -> None:
        super().__init__(
            f"{provider}/{model} declined to answer",
            user_text=f"{provider}/{model} declined to answer this. Put it differently, or ask with another model.",
        )


class TooMuchRead(LimitReached):
    """A provider found the request too long, even with every result of a tool shortened."""

    def __init__(self, refusal: ProviderFailed) -> None:
        super().__init__(f"still too long when shortened: {refusal}", limit="tool_output")


Shorten = Callable[[], Awaitable[Sequence[ChatMessage] | None]]
"""Sum up the history before the turn; returns what is left to be sent of it, None when it cannot get shorter."""


async def leave_as_it_is() -> None:
    """A `Shorten` for turns without a history of their own."""


@dataclass(frozen=True, slots=True)
class LoopServices:
    """What a turn's loop uses."""

    router: ModelRouter
    dispatcher: Dispatcher
    events: Events
    clock: Clock
    shorten: Shorten = leave_as_it_is


async def run_loop(services: LoopServices, scope: ToolScope, opening: ChatRequest) -> Completed:
    """Run a turn's loop to its answer.

    Raises: ProviderFailed, Declined, and LimitReached for "steps", "repetition", "step_seconds" and "tool_output".
    """
    return await _Run(services, scope, opening).to_its_end()


@dataclass(frozen=True, slots=True)
class _Answer:
    """One completion, with what of its text may be shown and with the call it may have written as text."""

    completion: Completion
    text: str
    calls: tuple[ToolCall, ...]


class _Run:
    """The state of one turn's loop."""

    def __init__(self, services: LoopServices, scope: ToolScope, opening: ChatRequest) -> None:
        self._services = services
        self._scope = scope
        self._transcript = Transcript(opening, scope.tools, scope.originals)
        self._guard = LoopGuard()
        self._facts = services.router.routes[0].facts
        self._usage = Usage()
        self._failures = 0
        self._peak = RequestSize()
        self._summaries = 0
        self._sent = False  # whether a tool has sent something to the chat
        self._spoke = services.router.routes[0].route

    async def to_its_end(self) -> Completed:
        for step in range(1, MAX_STEPS + 1):
            answer = await self._ask()
            if answer is None:
                return self._wordless(step)
            if not answer.calls:
                return self._completed(answer, step)
            self._transcript.add(AssistantMessage(answer.text, answer.calls, answer.completion.reasoning))
            calls = [unwrapped(call, self._scope.tools) for call in answer.calls]
            await self._answer_all(calls, run=step < MAX_STEPS)
            if not answer.text and self._needs_no_words(calls):
                return self._wordless(step)
        raise LimitReached(f"no answer after {MAX_STEPS} steps", limit="steps")

    async def _ask(self) -> _Answer | None:
        """Get an answer that says something; an empty one is asked for once more, even if thoughts were shown.

        None: there is nothing to add to what was sent to the chat already.
        """
        try:
            return await self._ask_once()
        except ProviderFailed as error:
            if error.kind is not ErrorKind.EMPTY:
                raise
            if self._sent:
                return None
            log.info("empty answer from %s/%s, asking once more", error.provider, error.model)
        return await self._ask_once()

    async def _ask_once(self) -> _Answer:
        completion = await self._call_with_room()
        parted = outgoing(completion.text)
        if parted.dropped:
            log.warning("internal parts left out of an answer: %s", ", ".join(parted.dropped))
        calls = completion.tool_calls or parted.calls
        if calls or parted.text:
            return _Answer(completion, parted.text, calls)
        if completion.finish == "refusal":
            raise Declined(completion.provider, completion.model)
        raise ProviderFailed(ErrorKind.EMPTY, provider=completion.provider, model=completion.model)

    async def _call_with_room(self) -> Completion:
        """Ask; when the provider finds the request too long, shorten results and ask again, at most three times, and
        then the history before the turn.
        """
        transcript, shortened = self._transcript, False
        if transcript.new:
            transcript.make_room(self._facts)
        while True:
            try:
                completion = await self._call_model(transcript.request)
            except ProviderFailed as error:
                if error.kind is not ErrorKind.CONTEXT_LENGTH or error.streamed:
                    raise
                if not transcript.make_more_room() and not await self._shorten_history():
                    raise (TooMuchRead(error) if shortened else error) from error
                log.info("shortened what is sent: %s", error)
                shortened = True
            else:
                transcript.answered(completion)
                self._peak = max(self._peak, transcript.size, key=lambda size: size.tokens)
                return completion

    async def _shorten_history(self) -> bool:
        if self._summaries >= MOST_SHORTENED or not self._transcript.has_earlier:
            return False
        self._summaries += 1
        earlier = await self._services.shorten()
        if earlier is not None:
            self._transcript.exchange_earlier(earlier)
        return earlier is not None

    async def _call_model(self, request: ChatRequest) -> Completion:
        router, turn = self._services.router, self._scope.turn
        call = _ModelCall(self._services, self._scope)
        try:
            async with asyncio.timeout(STEP_DEADLINE_S):
                completion = await router.complete(request, call.on_delta, turn_id=turn.id, key=turn.key)
        except TimeoutError as error:
            call.failed("error", router.current, "step deadline")
            raise LimitReached(f"no answer within {STEP_DEADLINE_S:g} s", limit="step_seconds") from error
        except ProviderFailed as error:
            call.failed("error", Route(error.provider, error.model), str(error))
            raise
        except FermixError as error:
            call.failed("error", router.current, str(error))
            raise
        except asyncio.CancelledError:
            call.failed("cancelled", router.current, "")
            raise
        call.succeeded(completion)
        self._usage += completion.usage
        self._spoke = Route(completion.provider, completion.model)
        self._facts = self._facts_of(self._spoke)
        return completion

    def _facts_of(self, answered: Route) -> ModelFacts:
        """Return what is known of the model that answered; the turn stays with it."""
        return next((one.facts for one in self._services.router.routes if one.route == answered), self._facts)

    async def _answer_all(self, calls: Sequence[ToolCall], *, run: bool) -> None:
        """Answer each call of one message, in order; whatever happens, none is left without its result."""
        waiting, spoken = deque(calls), False
        reason = STOPPED if run else NO_STEPS_LEFT
        try:
            while run and waiting:
                await asyncio.sleep(0)  # tools that never wait must not keep a stop from being heard
                call = waiting.popleft()
                speaks = self._speaks(call)
                self._transcript.add(self._put_off(call) if speaks and spoken else await self._answer(call))
                spoken = spoken or speaks
        finally:
            for call in waiting:
                self._services.dispatcher.skip(call, self._scope, reason)

    async def _answer(self, call: ToolCall) -> ToolMessage:
        verdict = self._guard.observe(call)
        if verdict is Verdict.END:
            self._services.dispatcher.skip(call, self._scope, LOOPING)
            raise LimitReached(f"{call.name!r} was called again and again", limit="repetition")
        result = await self._services.dispatcher.dispatch(call, self._scope)
        self._failures += not result.ok
        self._sent = self._sent or (result.ok and self._speaks(call))
        text = f"{result.text}\n\n{REPEATED}" if verdict is Verdict.WARN else result.text
        return ToolMessage(call.id, call.name, text, result.ok, result.images)

    def _put_off(self, call: ToolCall) -> ToolMessage:
        result = self._services.dispatcher.skip(call, self._scope, ONE_A_STEP)
        return ToolMessage(call.id, call.name, result.text, result.ok)

    def _speaks(self, call: ToolCall) -> bool:
        tool = self._scope.tools.get(call.name)
        return tool is not None and tool.category == CHANNEL

    def _needs_no_words(self, calls: Sequence[ToolCall]) -> bool:
        """Say whether the only call of a step was a success that is the whole answer."""
        tool, last = self._scope.tools.get(calls[0].name), self._transcript.new[-1]
        return len(calls) == 1 and tool is not None and tool.ends_turn and isinstance(last, ToolMessage) and last.ok

    def _wordless(self, steps: int) -> Completed:
        """End without a text; the marker lets the next turn know that nothing is missing."""
        return Completed(
            text="",
            model=str(self._spoke),
            usage=self._usage,
            steps=steps,
            tool_failures=self._failures,
            peak=self._peak,
            outside=self._scope.exposure.outside,
            new_messages=(*self._transcript.new, AssistantMessage(WORDLESS)),
        )

    def _completed(self, answer: _Answer, steps: int) -> Completed:
        completion = answer.completion
        final = AssistantMessage(answer.text, reasoning=completion.reasoning)
        return Completed(
            text=f"{answer.text}\n\n{CUT_OFF}" if completion.finish == "length" else answer.text,
            model=str(self._spoke),
            usage=self._usage,
            steps=steps,
            tool_failures=self._failures,
            peak=self._peak,
            outside=self._scope.exposure.outside,
            new_messages=(*self._transcript.new, final),
        )


class _ModelCall:
    """Watches one model call: streams what may be shown, measures, and leaves one ModelCalled."""

    def __init__(self, services: LoopServices, scope: ToolScope) -> None:
        self._events = services.events
        self._clock = services.clock
        self._scope = scope
        self._veil = Veil()
        self._began_at = services.clock.monotonic()
        self._first_token_s: float | None = None

    def on_delta(self, delta: Delta) -> None:
        if self._first_token_s is None:
            self._first_token_s = self._clock.monotonic() - self._began_at
        if isinstance(delta, TextDelta):
            self._show(self._veil.feed(delta.text))
        else:
            self._scope.port.stream(delta)

    def succeeded(self, completion: Completion) -> None:
        self._show(self._veil.finish())
        usage = completion.usage
        self._emit("ok", Route(completion.provider, completion.model), usage, "")

    def failed(self, status: Literal["error", "cancelled"], route: Route | None, error: str) -> None:
        self._emit(status, route, Usage(), error)

    def _show(self, text: str) -> None:
        if text:
            self._scope.port.stream(TextDelta(text))

    def _emit(self, status: Literal["ok", "error", "cancelled"], route: Route | None, usage: Usage, error: str) -> None:
        self._events.emit(
            ModelCalled(
                turn_id=self._scope.turn.id,
                provider=route.provider if route else "",
                model=route.model if route else "",
                status=status,
                duration_s=self._clock.monotonic() - self._began_at,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cached_tokens,
                first_token_s=self._first_token_s,
                error=error,
            )
        )
