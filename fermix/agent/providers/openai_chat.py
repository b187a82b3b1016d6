"""Chat Completions, the wire of openai (other base URLs), openrouter, mistral, ollama, llama.cpp and many more.

Pure: `remote.py` does the talking. What must stay true: `content` is left out rather than empty, every tool message
follows its call before anything else, and reasoning is given back under the name it came with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    Delta,
    FinishReason,
    Image,
    JsonObject,
    JsonValue,
    ToolCall,
    ToolMessage,
    ToolSchema,
    Usage,
    UserMessage,
)
from fermix.agent.providers import failures
from fermix.agent.providers.answer import AnswerDraft
from fermix.agent.providers.calls import wire_arguments, wire_name
from fermix.agent.providers.fields import a_count, a_list, a_text, an_object
from fermix.agent.providers.wire import bearer, cache_key, data_url, result_text, user_texts, with_tool_pictures

PLAIN_REASONING = ("reasoning_content", "reasoning")  # deepseek, xai, llama.cpp; then openrouter, ollama, vllm
_FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "model_length": "length",
    "content_filter": "refusal",
}


@dataclass(frozen=True, slots=True)
class ChatWire:
    """One server's dialect. `limit_field` names the output limit, `fields` are sent with every request."""

    limit_field: str = "max_tokens"
    asks_for_usage: bool = True
    caches_by_key: bool = False
    extra_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    fields: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    max_image_chars: int = 20 * 1024 * 1024

    @property
    def path(self) -> str:
        return "/chat/completions"

    @property
    def optional(self) -> frozenset[str]:
        return frozenset({"stream_options", "prompt_cache_key", self.limit_field, *self.fields})

    def headers(self, key: str | None) -> dict[str, str]:
        return {**bearer(key), **self.extra_headers}

    def body(self, request: ChatRequest, model: str) -> JsonObject:
        body: JsonObject = {"model": model, "stream": True, **self.fields}
        if self.asks_for_usage:
            body["stream_options"] = {"include_usage": True}
        if self.caches_by_key:
            body["prompt_cache_key"] = cache_key(request)
        if request.max_output_tokens is not None:
            body[self.limit_field] = request.max_output_tokens
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
        body["messages"] = [*_system(request.system), *map(_message, with_tool_pictures(request.messages))]
        return body

    def reader(self) -> ChatReader:
        return ChatReader()


def _system(parts: tuple[str, ...]) -> list[JsonValue]:
    text = "\n\n".join(part for part in parts if part)
    return [{"role": "system", "content": text}] if text else []


def _tool(tool: ToolSchema) -> JsonValue:
    function: JsonObject = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _message(message: ChatMessage) -> JsonValue:
    match message:
        case UserMessage():
            return {"role": "user", "content": _user_content(message)}
        case AssistantMessage():
            return _assistant(message)
        case ToolMessage():
            return {"role": "tool", "tool_call_id": message.call_id, "content": result_text(message)}


def _user_content(message: UserMessage) -> JsonValue:
    if not message.images:
        return "".join(user_texts(message))
    return [*map(_text, user_texts(message)), *map(_image, message.images)]


def _text(text: str) -> JsonValue:
    return {"type": "text", "text": text}


def _image(image: Image) -> JsonValue:
    return {"type": "image_url", "image_url": {"url": data_url(image)}}


def _assistant(message: AssistantMessage) -> JsonValue:
    encoded: JsonObject = {"role": "assistant"}
    if message.text.strip():
        encoded["content"] = message.text
    for item in message.reasoning.items if message.reasoning else ():
        encoded |= item
    if message.tool_calls:
        encoded["tool_calls"] = [_call(call) for call in message.tool_calls]
    return encoded


def _call(call: ToolCall) -> JsonValue:
    function: JsonObject = {"name": wire_name(call.name), "arguments": wire_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


class ChatReader:
    """Reads chunks, e.g. {"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}."""

    def __init__(self) -> None:
        self.draft = AnswerDraft()
        self._thoughts: dict[str, list[str]] = {}
        self._details: list[JsonObject] = []

    def read(self, event: JsonObject) -> list[Delta]:
        if event.get("error"):
            raise failures.from_stream(event["error"])
        self._count(an_object(event.get("usage")))
        news: list[Delta] = []
        for choice in map(an_object, a_list(event.get("choices"))):
            if not a_count(choice.get("index")):  # we ask for one choice; a second would be noise
                part = an_object(choice.get("delta")) or an_object(choice.get("message"))
                news += self._part(part)
                self._finish(a_text(choice.get("finish_reason")), choice)
        return news

    def _part(self, part: JsonObject) -> list[Delta]:
        news = self._think(part)
        content = part.get("content")
        news += self.draft.say(content) if isinstance(content, str) else self._content_list(a_list(content))
        if refusal := a_text(part.get("refusal")):
            self.draft.finish = "refusal"
            news += self.draft.say(refusal)
        for call in map(an_object, a_list(part.get("tool_calls"))):
            news += self._call(call)
        return news

    def _think(self, part: JsonObject) -> list[Delta]:
        details = [item for item in a_list(part.get("reasoning_details")) if isinstance(item, dict)]
        for item in details:
            _merge_detail(self._details, item)
        name = next((name for name in PLAIN_REASONING if a_text(part.get(name))), None)
        if name is not None:
            thought = a_text(part[name])
            self._thoughts.setdefault(name, []).append(thought)
        else:
            thought = "".join(a_text(item.get("text")) or a_text(item.get("summary")) for item in details)
        return self.draft.think(thought)

    def _keep_reasoning(self) -> None:
        """Details hold signatures and say all that the plain text says; one of the two goes back, never both."""
        kept: JsonObject = {name: "".join(pieces) for name, pieces in self._thoughts.items()}
        if self._details:
            kept = {"reasoning_details": [*self._details]}
        self.draft.reasoning = [kept] if kept else []

    def _content_list(self, parts: list[JsonValue]) -> list[Delta]:
        """Read content in parts, as Mistral sends it: {"type":"text"} and {"type":"thinking"}."""
        news: list[Delta] = []
        for part in map(an_object, parts):
            if part.get("type") == "thinking":
                thoughts = map(an_object, a_list(part.get("thinking")))
                news += self.draft.think("".join(a_text(thought.get("text")) for thought in thoughts))
            else:
                news += self.draft.say(a_text(part.get("text")))
        return news

    def _call(self, call: JsonObject) -> list[Delta]:
        function = an_object(call.get("function"))
        draft = self.draft.calls.at(a_count(call.get("index")), a_text(call.get("id")))
        news = self.draft.name_call(draft, a_text(function.get("name")))
        arguments = function.get("arguments")
        if isinstance(arguments, dict):  # some servers send the object itself
            draft.pieces.append(wire_arguments(arguments))
        elif piece := a_text(arguments):
            draft.pieces.append(piece)
        return news

    def _finish(self, reason: str, choice: JsonObject) -> None:
        if reason == "error":
            raise failures.from_stream(choice.get("error") or "the provider broke off its answer")
        if reason and self.draft.finish != "refusal":
            self.draft.finish = _FINISH.get(reason, "stop")
        if reason:
            self._keep_reasoning()

    def _count(self, usage: JsonObject) -> None:
        if usage:
            details = an_object(usage.get("prompt_tokens_details"))
            self.draft.usage = Usage(
                a_count(usage.get("prompt_tokens")) or 0,
                a_count(usage.get("completion_tokens")) or 0,
                a_count(details.get("cached_tokens")),
            )


def _merge_detail(kept: list[JsonObject], piece: JsonObject) -> None:
    """Join a streamed reasoning detail to the one it continues; the server wants them back whole and in order."""
    last = kept[-1] if kept else {}
    if not kept or (last.get("type"), last.get("index")) != (piece.get("type"), piece.get("index")):
        kept.append(dict(piece))
        return
    for name, value in piece.items():
        before = last.get(name)
        joins = name in ("text", "summary", "data") and isinstance(before, str) and isinstance(value, str)
        if joins:
            last[name] = f"{before}{value}"
        elif value is not None:
            last[name] = value
