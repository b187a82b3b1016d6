"""What a wire format is: pure functions from a request to a body and from events to an answer. No I/O here.

`remote.py` does the talking. What must stay true: the same request gives the same bytes, so that caches hit.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Protocol

from fermix.agent.model import ChatMessage, ChatRequest, Image, JsonObject, ToolMessage, UserMessage, valid_text
from fermix.agent.providers.answer import Reader
from fermix.agent.results import NO_OUTPUT

NO_TEXT = "(no text)"
TOOL_PICTURES = "Pictures returned by the tools:"


class Wire(Protocol):
    """One wire format in one provider's dialect.

    `optional` are the body's fields that can be left out when a server refuses them. `max_image_chars` bounds one
    picture in base64.
    """

    @property
    def path(self) -> str: ...

    @property
    def optional(self) -> frozenset[str]: ...

    @property
    def max_image_chars(self) -> int: ...

    def headers(self, key: str | None) -> dict[str, str]: ...

    def body(self, request: ChatRequest, model: str) -> JsonObject: ...

    def reader(self) -> Reader: ...


def encode_body(body: JsonObject) -> bytes:
    """Return compact UTF-8 JSON. Text with half a surrogate pair is legal in Python and nowhere else."""
    return valid_text(json.dumps(body, ensure_ascii=False, separators=(",", ":"))).encode("utf-8")


def data_url(image: Image) -> str:
    return f"data:{image.mime};base64,{base64_text(image)}"


def base64_text(image: Image) -> str:
    return base64.b64encode(image.data).decode("ascii")


def user_texts(message: UserMessage) -> tuple[str, ...]:
    """Return the text as one part, none for a picture without a caption: blank text is refused everywhere."""
    if message.text.strip():
        return (message.text,)
    return () if message.images else (NO_TEXT,)


def result_text(message: ToolMessage) -> str:
    return message.text if message.text.strip() else NO_OUTPUT


def with_tool_pictures(messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
    """Give the history for a wire whose results hold text only: their pictures follow the whole batch, as a user's."""
    waiting: tuple[Image, ...] = ()
    for message in messages:
        if waiting and not isinstance(message, ToolMessage):
            yield UserMessage(TOOL_PICTURES, waiting)
            waiting = ()
        if isinstance(message, ToolMessage):
            waiting += message.images
        yield message
    if waiting:
        yield UserMessage(TOOL_PICTURES, waiting)


def cache_key(request: ChatRequest) -> str:
    """Name the stable start of a request, so that its servers can route equal ones to the same cache."""
    stable = request.system[0] if request.system else ""
    return "fermix-" + hashlib.sha256(stable.encode("utf-8", "replace")).hexdigest()[:16]


def bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}
