"""One attempt at one route, booked: reserved before it is sent, settled whatever becomes of it.

Called by the router for every try. What a provider counted is believed. Where it counted nothing, a call that was
answered, broken off or stopped is booked by estimate; one that never reached a model costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fermix.agent.budget import Books, Call, Outcome, Price
from fermix.agent.model import (
    AssistantMessage,
    ChatRequest,
    Completion,
    Delta,
    Purpose,
    ToolCallDelta,
    ToolSchema,
    Usage,
)
from fermix.agent.providers.provider import ErrorKind, ModelFacts, OnDelta, Provider, ProviderFailed
from fermix.agent.tokens import BYTES_PER_TOKEN, message_tokens, prompt_tokens, text_bytes
from fermix.errors import FermixError
from fermix.message import ConversationKey

REFUSALS = frozenset(
    {
        ErrorKind.AUTH,
        ErrorKind.QUOTA,
        ErrorKind.RATE_LIMIT,
        ErrorKind.UNAVAILABLE,
        ErrorKind.CONTEXT_LENGTH,
        ErrorKind.MODEL_NOT_FOUND,
        ErrorKind.IMAGE_UNSUPPORTED,
        ErrorKind.REFUSED_REQUEST,
    }
)
"""After these no model has worked, unless something had been shown already."""


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a call is for and who pays."""

    turn_id: str
    purpose: Purpose
    key: ConversationKey | None


class Attempts:
    """Makes attempts. Remembers the size of the last prompt's fixed part, which hardly ever changes."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._tools: tuple[ToolSchema, ...] = ()
        self._tools_tokens = 0

    async def make(self, occasion: Occasion, provider: Provider, request: ChatRequest, on_delta: OnDelta) -> Completion:
        """Ask a route once. Raises: what the provider raises; BudgetReached or PriceUnknown before it is asked."""
        prompt = self._prompt_tokens(request)
        booking = self._books.reserve(_call(occasion, provider, request, prompt))
        heard = _Heard(on_delta)
        cost: _Cost | None = None
        try:
            completion = await provider.complete(_bounded(request, booking.answer_tokens), heard)
            cost = _answered(completion, prompt, heard)
        except ProviderFailed as error:
            cost = _failed(error, prompt, heard)
            raise
        except FermixError:  # an engine or a key that is not there
            cost = ("failed", Usage(), False)
            raise
        finally:
            outcome, usage, estimated = cost or _by_estimate("cancelled", prompt, heard)
            booking.settle(outcome, usage, estimated=estimated)
        return completion

    def _prompt_tokens(self, request: ChatRequest) -> int:
        if request.tools is not self._tools:
            self._tools, self._tools_tokens = request.tools, prompt_tokens((), request.tools)
        return self._tools_tokens + prompt_tokens(request.system, ()) + sum(map(message_tokens, request.messages))


class _Heard:
    """Passes deltas on and counts what the model has written."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self._bytes = 0

    def __call__(self, delta: Delta) -> None:
        self._bytes += text_bytes(delta.name if isinstance(delta, ToolCallDelta) else delta.text)
        self._on_delta(delta)

    @property
    def tokens(self) -> int:
        return -(-self._bytes // BYTES_PER_TOKEN)


_Cost = tuple[Outcome, Usage, bool]


def price_of(facts: ModelFacts) -> Price | None:
    """Return the price of the catalog, None when it has none."""
    if facts.input_price is None or facts.output_price is None:
        return None
    return Price(facts.input_price, facts.output_price, facts.cached_price)


def _call(occasion: Occasion, provider: Provider, request: ChatRequest, prompt: int) -> Call:
    facts, route = provider.facts, provider.route
    return Call(
        route.provider, route.model, occasion.purpose, occasion.turn_id, occasion.key,
        prompt, facts.max_output_tokens, request.max_output_tokens, price_of(facts),
    )  # fmt: skip


def _bounded(request: ChatRequest, answer_tokens: int | None) -> ChatRequest:
    return request if answer_tokens is None else replace(request, max_output_tokens=answer_tokens)


def _answered(completion: Completion, prompt: int, heard: _Heard) -> _Cost:
    if completion.usage.input_tokens or completion.usage.output_tokens:
        return "answered", completion.usage, False
    said = message_tokens(AssistantMessage(completion.text, completion.tool_calls))
    return "answered", Usage(prompt, max(said, heard.tokens)), True


def _failed(error: ProviderFailed, prompt: int, heard: _Heard) -> _Cost:
    if error.usage is not None and (error.usage != Usage() or error.kind is not ErrorKind.EMPTY):
        return "failed", error.usage, False
    if error.kind in REFUSALS and not error.streamed:
        return "failed", Usage(), False
    return _by_estimate("failed", prompt, heard)


def _by_estimate(outcome: Outcome, prompt: int, heard: _Heard) -> _Cost:
    return outcome, Usage(prompt, heard.tokens), True
