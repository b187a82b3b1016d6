"""What a model provider is: one object per route, one method. The wire formats live beside this file.

Errors are sorted here once, so that routing can decide without knowing a vendor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from fermix.agent.model import ChatRequest, Completion, Delta, Usage
from fermix.errors import ProviderUnavailable

SERVER_TEXT_CHARS = 500


class ErrorKind(StrEnum):
    """What went wrong, by what can be done about it. Source: reference 4, section 2.6."""

    AUTH = "auth"
    QUOTA = "quota"
    RATE_LIMIT = "rate_limit"
    TIMEOUT = "timeout"
    UNAVAILABLE = "unavailable"
    CONTEXT_LENGTH = "context_length"
    MODEL_NOT_FOUND = "model_not_found"
    IMAGE_UNSUPPORTED = "image_unsupported"
    REFUSED_REQUEST = "refused_request"
    MALFORMED = "malformed"
    EMPTY = "empty"
    TRANSPORT = "transport"


class ProviderFailed(ProviderUnavailable):
    """A call failed. `status` is the HTTP status or None; `streamed` says visible output had already been
    shown, which rules out a retry and a fallback. `server_text` is the provider's own sentence, cut to 500.
    `usage` is what the call is known to have used all the same, None when nobody can tell.
    """

    def __init__(
        self,
        kind: ErrorKind,
        *,
        provider: str,
        model: str,
        server_text: str = "",
        status: int | None = None,
        streamed: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        said = server_text[:SERVER_TEXT_CHARS]
        super().__init__(f"{provider}/{model}: {kind} status={status} {said}".rstrip(), retry_after_s=retry_after_s)
        self.kind = kind
        self.provider = provider
        self.model = model
        self.server_text = said
        self.status = status
        self.streamed = streamed
        self.usage: Usage | None = None


class NothingListens(ProviderFailed):
    """A server that should run on this machine does not; `address` is host and port."""

    def __init__(self, address: str, route: Route) -> None:
        said = f"nothing listens at {address}"
        super().__init__(ErrorKind.TRANSPORT, provider=route.provider, model=route.model, server_text=said)
        self.usage = Usage()
        self.address = address


class AllRoutesFailed(ProviderUnavailable):
    """Two or more routes were tried for one call and none answered; `failures` are in the order of the tries."""

    def __init__(self, failures: tuple[ProviderFailed, ...]) -> None:
        tried = "; ".join(str(failure) for failure in failures)
        super().__init__(f"all routes failed: {tried}", retry_after_s=failures[-1].retry_after_s)
        self.failures = failures


@dataclass(frozen=True, slots=True)
class Route:
    """A provider id from config and a model id of that provider."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}/{self.model}"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the catalog knows of a model. Prices are US dollars per million tokens, None when unknown.

    `compact` asks for the short profile: prompt of at most 1,200 tokens and four tools.
    `vision` is None when unknown; only a model known to be text-only refuses a picture.
    """

    context_tokens: int
    max_output_tokens: int
    vision: bool | None
    input_price: float | None = None
    output_price: float | None = None
    compact: bool = False
    cached_price: float | None = None
    """Of a million tokens of the prompt that the provider had kept; None takes them at the full price."""


class Key(Protocol):
    """A secret that shows itself only when asked by name."""

    def reveal(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider listens, e.g. "https://api.openai.com/v1"; `key` is None where none is needed."""

    base_url: str
    key: Key | None


OpenEndpoint = Callable[[], Awaitable[Endpoint]]
"""Asked before every call; a local engine starts here. May raise any FermixError, which ends the call."""

OnDelta = Callable[[Delta], None]


class Provider(Protocol):
    """One route, ready to be called. Made by `chain.py` from a spec, a config section and a key."""

    @property
    def route(self) -> Route: ...

    @property
    def facts(self) -> ModelFacts: ...

    async def complete(self, request: ChatRequest, on_delta: OnDelta) -> Completion:
        """Stream one answer; `on_delta` is called from the loop's thread as parts arrive.

        Raises: ProviderFailed. Cancellation closes the connection and passes through.
        """
        ...
