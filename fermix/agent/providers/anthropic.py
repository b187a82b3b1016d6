"""The Messages API of Anthropic.

Pure: `remote.py` does the talking. What must stay true: content is always in blocks, so that a history keeps its
bytes; results of one batch are one user message; thinking goes back first and exactly as it came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    Delta,
    FinishReason,
    Image,
    JsonObject,
    JsonValue,
    ToolMessage,
    ToolSchema,
    Usage,
    UserMessage,
)
from fermix.agent.providers import failures
from fermix.agent.providers.answer import AnswerDraft
from fermix.agent.providers.calls import wire_arguments, wire_name
from fermix.agent.providers.fields import a_count, a_list, a_text, an_object
from fermix.agent.providers.wire import base64_text, result_text, user_texts

API_VERSION = "2023-06-01"
MAX_OUTPUT_TOKENS = 16_384  # the API demands a limit; more only helps answers nobody reads
BEGINNING = "(The conversation before this point is not shown.)"
_CACHED: JsonObject = {"type": "ephemeral"}
_FINISH: Mapping[str, FinishReason] = {
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
}


@dataclass(frozen=True, slots=True)
class MessagesWire:
    """`max_output_tokens` is the model's own limit; `thinks` asks for adaptive thinking, which not every model has."""

    max_output_tokens: int = MAX_OUTPUT_TOKENS
    thinks: bool = False
    max_image_chars: int = 5 * 1024 * 1024

    @property
    def path(self) -> str:
        return "/messages"

    @property
    def optional(self) -> frozenset[str]:
        return frozenset({"thinking"})

    def headers(self, key: str | None) -> dict[str, str]:
        version = {"anthropic-version": API_VERSION}
        return version if key is None else {"x-api-key": key, **version}

    def body(self, request: ChatRequest, model: str) -> JsonObject:
        limit = min(request.max_output_tokens or MAX_OUTPUT_TOKENS, self.max_output_tokens)
        body: JsonObject = {"model": model, "stream": True, "max_tokens": limit}
        if self.thinks:
            body["thinking"] = {"type": "adaptive"}
        if request.tools:
            body["tools"] = _tools(request.tools)
        if system := _system(request.system):
            body["system"] = system
        body["messages"] = _messages(request.messages)
        return body

    def reader(self) -> MessagesReader:
        return MessagesReader()


def _tools(tools: tuple[ToolSchema, ...]) -> list[JsonValue]:
    encoded: list[JsonObject] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools
    ]
    encoded[-1]["cache_control"] = _CACHED
    return [*encoded]


def _system(parts: tuple[str, ...]) -> list[JsonValue]:
    """Make a block of each part. The first, stablest one and the last are ends of cached prefixes."""
    blocks: list[JsonObject] = [{"type": "text", "text": part} for part in parts if part.strip()]
    for block in (*blocks[:1], *blocks[-1:]):
        block["cache_control"] = _CACHED
    return [*blocks]


def _messages(messages: tuple[ChatMessage, ...]) -> list[JsonValue]:
    turns: list[tuple[str, list[JsonObject]]] = []
    if not messages or isinstance(messages[0], AssistantMessage):
        turns.append(("user", [_text(BEGINNING)]))
    for message in messages:
        role = "assistant" if isinstance(message, AssistantMessage) else "user"
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(_blocks(message))
        else:
            turns.append((role, [*_blocks(message)]))
    turns[-1][1][-1]["cache_control"] = _CACHED
    return [{"role": role, "content": [*blocks]} for role, blocks in turns]


def _blocks(message: ChatMessage) -> Iterable[JsonObject]:
    match message:
        case UserMessage():
            yield from map(_text, user_texts(message))
            yield from map(_image, message.images)
        case ToolMessage():
            content: list[JsonValue] = [_text(result_text(message)), *map(_image, message.images)]
            result: JsonObject = {"type": "tool_result", "tool_use_id": message.call_id, "content": content}
            yield result if message.ok else {**result, "is_error": True}
        case AssistantMessage():
            yield from (dict(item) for item in (message.reasoning.items if message.reasoning else ()))
            if message.text.strip():
                yield _text(message.text)
            for call in message.tool_calls:
                yield {"type": "tool_use", "id": call.id, "name": wire_name(call.name), "input": dict(call.arguments)}


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _image(image: Image) -> JsonObject:
    return {"type": "image", "source": {"type": "base64", "media_type": image.mime, "data": base64_text(image)}}


class MessagesReader:
    """Reads events, e.g. {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}."""

    def __init__(self) -> None:
        self.draft = AnswerDraft()
        self._thoughts: dict[int, JsonObject] = {}
        self._usage: JsonObject = {}

    def read(self, event: JsonObject) -> list[Delta]:
        at = a_count(event.get("index")) or 0
        match event.get("type"):
            case "message_start":
                self._begin(an_object(event.get("message")))
            case "content_block_start":
                return self._start_block(at, an_object(event.get("content_block")))
            case "content_block_delta":
                return self._add(at, an_object(event.get("delta")))
            case "message_delta":
                self._finish(an_object(event.get("delta")), an_object(event.get("usage")))
            case "message_stop":
                self.draft.ended = True
            case "message":
                return self._read_whole(event)
            case _ if event.get("error"):
                raise failures.from_stream(event["error"])
            case _:
                pass
        return []

    def _begin(self, message: JsonObject) -> None:
        """Begin; a second start in one stream means that the first message was abandoned."""
        self.draft.restart()
        self._thoughts.clear()
        self._usage = {}
        self._count(an_object(message.get("usage")))

    def _start_block(self, at: int, block: JsonObject) -> list[Delta]:
        match block.get("type"):
            case "text":
                return self.draft.say(a_text(block.get("text")))
            case "thinking" | "redacted_thinking":
                self._thoughts[at] = dict(block)
                return self.draft.think(a_text(block.get("thinking")))
            case "tool_use":
                draft = self.draft.calls.at(at, "")
                if given := an_object(block.get("input")):
                    draft.pieces.append(wire_arguments(given))
                return self.draft.name_call(draft, a_text(block.get("name")))
            case _:  # what a server ran by itself is not asked for and no part of the reply
                return []

    def _add(self, at: int, delta: JsonObject) -> list[Delta]:
        match delta.get("type"):
            case "text_delta":
                return self.draft.say(a_text(delta.get("text")))
            case "input_json_delta" if (draft := self.draft.calls.get(at)) is not None:
                draft.pieces.append(a_text(delta.get("partial_json")))
                return []
            case "thinking_delta":
                thought = a_text(delta.get("thinking"))
                self._extend_thought(at, "thinking", thought)
                return self.draft.think(thought)
            case "signature_delta":
                self._extend_thought(at, "signature", a_text(delta.get("signature")))
                return []
            case _:
                return []

    def _extend_thought(self, at: int, field: str, more: str) -> None:
        block = self._thoughts.setdefault(at, {"type": "thinking", "thinking": ""})
        block[field] = a_text(block.get(field)) + more

    def _finish(self, delta: JsonObject, usage: JsonObject) -> None:
        self._count(usage)
        if reason := a_text(delta.get("stop_reason")):
            self.draft.finish = _FINISH.get(reason, "stop")
        self.draft.reasoning = [self._thoughts[at] for at in sorted(self._thoughts)]

    def _read_whole(self, message: JsonObject) -> list[Delta]:
        """Read the answer of a server that does not stream."""
        news: list[Delta] = []
        for at, block in enumerate(map(an_object, a_list(message.get("content")))):
            news += self._start_block(at, block)
        self._finish(message, an_object(message.get("usage")))
        self.draft.ended = True
        return news

    def _count(self, usage: JsonObject) -> None:
        """Keep the latest numbers; cached input is billed apart and counted apart, so it is added here."""
        self._usage |= {name: value for name, value in usage.items() if a_count(value) is not None}
        read, written = (
            a_count(self._usage.get("cache_read_input_tokens")),
            self._usage.get("cache_creation_input_tokens"),
        )
        fresh = a_count(self._usage.get("input_tokens")) or 0
        total = fresh + (read or 0) + (a_count(written) or 0)
        self.draft.usage = Usage(total, a_count(self._usage.get("output_tokens")) or 0, read)
