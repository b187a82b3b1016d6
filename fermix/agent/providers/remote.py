"""One route over HTTP: send a request in some wire format, follow the answer, sort what goes wrong.

Made by `chain.py` and, for the local model, by `catalog.py`. What must stay true: leaving in any way, cancellation
included, closes the connection; a failure says whether anything had been shown; the key appears in the request's
headers and nowhere else.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable

from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    Completion,
    Delta,
    Image,
    ToolMessage,
    Usage,
)
from fermix.agent.providers import failures
from fermix.agent.providers.failures import BadAnswer
from fermix.agent.providers.provider import (
    ErrorKind,
    ModelFacts,
    NothingListens,
    OnDelta,
    OpenEndpoint,
    ProviderFailed,
    Route,
)
from fermix.agent.providers.stream import Patience, follow
from fermix.agent.providers.wire import Wire, encode_body
from fermix.message import PICTURE_TYPES
from fermix.net import Net, NetFailed

log = logging.getLogger(__name__)

UNSEEN = "[the picture is left out: this model reads text only]"

UNSENT = ("unreachable", "tls")  # faults of a connection before a request travels on it
_REFUSALS = (400, 404, 422)  # statuses under which servers object to a field
_REASONING_REFUSED = re.compile(r"signature|encrypted|reasoning|thinking", re.IGNORECASE)
_FIELD_REFUSED = re.compile(
    r"unsupported|not support|unknown|unrecognized|not permitted|extra|unexpected|not allowed|must be verified",
    re.IGNORECASE,
)


class RemoteProvider:
    """A model behind a URL. The endpoint is asked before every call, so that a local engine can start late."""

    def __init__(
        self, route: Route, facts: ModelFacts, wire: Wire, endpoint: OpenEndpoint, net: Net, patience: Patience
    ) -> None:
        self._route = route
        self._facts = facts
        self._wire = wire
        self._endpoint = endpoint
        self._net = net
        self._patience = patience
        self._refused_fields: set[str] = set()
        self._is_blind = facts.vision is False

    @property
    def route(self) -> Route:
        return self._route

    @property
    def facts(self) -> ModelFacts:
        return self._facts

    async def complete(self, request: ChatRequest, on_delta: OnDelta) -> Completion:
        """Stream one answer. What the server refuses to read, a field or old reasoning, is left out the second time.

        Raises: ProviderFailed.
        """
        shown = _Shown(on_delta)
        try:
            seen = _without_tool_pictures(request) if self._is_blind else request
            self._check_images(_images(seen.messages))
            return await self._complete(_for_route(seen, self._route), shown)
        except BadAnswer as error:
            raise self._failed(error.kind, error.text, shown, error) from error
        except NetFailed as error:
            if error.closed_address:
                raise NothingListens(error.closed_address, self._route) from error
            kind = ErrorKind.TIMEOUT if error.fault == "timeout" else ErrorKind.TRANSPORT
            failed = self._failed(kind, str(error), shown)
            failed.usage = Usage() if error.fault in UNSENT else None
            raise failed from error

    async def _complete(self, request: ChatRequest, shown: _Shown) -> Completion:
        try:
            return await self._send(request, shown)
        except BadAnswer as error:
            mended = self._mended(request, error)
            if mended is None:
                raise
        return await self._complete(mended, shown)  # ends, because each mending takes something away for good

    async def _send(self, request: ChatRequest, shown: _Shown) -> Completion:
        endpoint = await self._endpoint()
        key = endpoint.key.reveal() if endpoint.key is not None else None
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",  # compression would hold back small chunks
            **self._wire.headers(key),
        }
        body = self._wire.body(request, self._route.model)
        payload = encode_body({name: value for name, value in body.items() if name not in self._refused_fields})
        url = endpoint.base_url.rstrip("/") + self._wire.path
        reader = self._wire.reader()
        async with self._net.post_stream(
            url, headers=headers, body=payload, timeouts=self._patience.timeouts
        ) as response:
            if response.status != 200:
                complaint = await response.read(failures.ERROR_BODY_BYTES)
                raise failures.from_response(response.status, response.headers, complaint, key)
            await follow(response, reader, shown, self._patience)
        return reader.draft.completion(self._route, request.tools)

    def _check_images(self, images: Iterable[Image]) -> None:
        """Refuse what is known to be refused, before megabytes travel. Raises: BadAnswer."""
        for image in images:
            if self._facts.vision is False:
                raise BadAnswer(ErrorKind.IMAGE_UNSUPPORTED, "this model reads text only")
            if image.mime not in PICTURE_TYPES or not image.data:
                raise BadAnswer(
                    ErrorKind.REFUSED_REQUEST, f"a picture of type {image.mime or 'unknown'} cannot be sent"
                )
            size, limit = len(image.data) * 4 // 3, self._wire.max_image_chars
            if size > limit:
                sizes = f"{size / 1_048_576:.1f} MB encoded, {limit / 1_048_576:.0f} MB are allowed"
                raise BadAnswer(ErrorKind.REFUSED_REQUEST, f"the picture is too large: {sizes}")

    def _mended(self, request: ChatRequest, error: BadAnswer) -> ChatRequest | None:
        """Return what to send instead after a refusal that we can do something about, else None."""
        if error.kind is ErrorKind.IMAGE_UNSUPPORTED and _has_tool_pictures(request.messages):
            log.info("%s sees no pictures; those that tools found are left out", self._route)
            self._is_blind = True
            return _without_tool_pictures(request)
        if error.status not in _REFUSALS or error.kind is not ErrorKind.REFUSED_REQUEST:
            return None
        if (field := self._refused_field(error)) is not None:
            log.info("%s refuses the field %s; it is left out from now on", self._route, field)
            self._refused_fields.add(field)
            return request
        if _REASONING_REFUSED.search(error.text) and _has_reasoning(request.messages):
            log.info("%s refuses the reasoning in the history; sending without it", self._route)
            return dataclasses.replace(request, messages=tuple(_without_reasoning(m) for m in request.messages))
        return None

    def _refused_field(self, error: BadAnswer) -> str | None:
        candidates = self._wire.optional - self._refused_fields
        named = re.split(r"[.\[]", error.parameter)[0]
        if named in candidates:
            return named
        if not _FIELD_REFUSED.search(error.text):
            return None
        return next((name for name in sorted(candidates) if re.search(rf"\b{name}\b", error.text)), None)

    def _failed(self, kind: ErrorKind, text: str, shown: _Shown, answer: BadAnswer | None = None) -> ProviderFailed:
        failed = ProviderFailed(
            kind,
            provider=self._route.provider,
            model=self._route.model,
            server_text=text,
            status=answer.status if answer else None,
            streamed=shown.any,
            retry_after_s=answer.retry_after_s if answer else None,
        )
        failed.usage = answer.usage if answer else None
        return failed


class _Shown:
    """Passes deltas on and remembers that there were any."""

    def __init__(self, on_delta: OnDelta) -> None:
        self._on_delta = on_delta
        self.any = False

    def __call__(self, delta: Delta) -> None:
        self.any = True
        self._on_delta(delta)


def _for_route(request: ChatRequest, route: Route) -> ChatRequest:
    """Leave out reasoning of other models, which nobody else can verify, and answers that say nothing."""
    messages = tuple(_own(message, route) for message in request.messages if not _says_nothing(message))
    return dataclasses.replace(request, messages=messages)


def _own(message: ChatMessage, route: Route) -> ChatMessage:
    if not isinstance(message, AssistantMessage) or message.reasoning is None:
        return message
    foreign = (message.reasoning.provider, message.reasoning.model) != (route.provider, route.model)
    return _without_reasoning(message) if foreign else message


def _says_nothing(message: ChatMessage) -> bool:
    return isinstance(message, AssistantMessage) and not message.tool_calls and not message.text.strip()


def _has_reasoning(messages: Iterable[ChatMessage]) -> bool:
    return any(isinstance(message, AssistantMessage) and message.reasoning for message in messages)


def _without_reasoning(message: ChatMessage) -> ChatMessage:
    return dataclasses.replace(message, reasoning=None) if isinstance(message, AssistantMessage) else message


def _has_tool_pictures(messages: Iterable[ChatMessage]) -> bool:
    return any(isinstance(message, ToolMessage) and message.images for message in messages)


def _without_tool_pictures(request: ChatRequest) -> ChatRequest:
    """Leave out what the model looked for by itself and cannot see; the turn goes on with the words about it."""
    return dataclasses.replace(request, messages=tuple(map(_in_words, request.messages)))


def _in_words(message: ChatMessage) -> ChatMessage:
    if not isinstance(message, ToolMessage) or not message.images:
        return message
    return dataclasses.replace(message, text=f"{message.text}\n{UNSEEN}", images=())


def _images(messages: Iterable[ChatMessage]) -> Iterable[Image]:
    return (image for message in messages if not isinstance(message, AssistantMessage) for image in message.images)
