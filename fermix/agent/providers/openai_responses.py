"""The Responses API, the wire of openai's own models and of xai.

Pure: `remote.py` does the talking. What must stay true: nothing is stored at the server, so every request repeats the
instructions and the history; reasoning goes back sealed and without its id; the output index tells items apart,
because some servers change the ids within one stream.
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
from fermix.agent.providers.wire import bearer, cache_key, data_url, result_text, user_texts, with_tool_pictures

_FINISH: Mapping[str, FinishReason] = {"max_output_tokens": "length", "content_filter": "refusal"}
_THOUGHTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_TEXTS = ("response.output_text.delta", "response.refusal.delta")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True, slots=True)
class ResponsesWire:
    """One server's dialect. `takes_slashes` is False where a slash in an enum of a tool's schema is refused (xai)."""

    summarizes_reasoning: bool = True
    caches_by_key: bool = True
    takes_slashes: bool = True
    max_image_chars: int = 20 * 1024 * 1024

    @property
    def path(self) -> str:
        return "/responses"

    @property
    def optional(self) -> frozenset[str]:
        return frozenset({"include", "reasoning", "prompt_cache_key", "max_output_tokens"})

    def headers(self, key: str | None) -> dict[str, str]:
        return bearer(key)

    def body(self, request: ChatRequest, model: str) -> JsonObject:
        body: JsonObject = {"model": model, "stream": True, "store": False, "include": ["reasoning.encrypted_content"]}
        if self.summarizes_reasoning:
            body["reasoning"] = {"summary": "auto"}
        if self.caches_by_key:
            body["prompt_cache_key"] = cache_key(request)
        if request.max_output_tokens is not None:
            body["max_output_tokens"] = request.max_output_tokens
        if instructions := "\n\n".join(part for part in request.system if part):
            body["instructions"] = instructions
        if request.tools:
            body["tools"] = [self._tool(tool) for tool in request.tools]
        body["input"] = [item for message in with_tool_pictures(request.messages) for item in _items(message)]
        return body

    def reader(self) -> ResponsesReader:
        return ResponsesReader()

    def _tool(self, tool: ToolSchema) -> JsonValue:
        parameters: JsonValue = tool.parameters if self.takes_slashes else _without_slashes(tool.parameters)
        return {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": parameters,
            "strict": False,
        }


def _without_slashes(schema: JsonValue) -> JsonValue:
    if isinstance(schema, list):
        return [_without_slashes(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _plain_enum(part) if name == "enum" else _without_slashes(part) for name, part in schema.items()}


def _plain_enum(values: JsonValue) -> JsonValue:
    return [value for value in a_list(values) if "/" not in a_text(value)]


def _items(message: ChatMessage) -> Iterable[JsonValue]:
    match message:
        case UserMessage():
            text = map(_input_text, user_texts(message))
            yield {"role": "user", "content": [*text, *map(_input_image, message.images)]}
        case AssistantMessage():
            yield from _assistant(message)
        case ToolMessage():
            yield {"type": "function_call_output", "call_id": message.call_id, "output": result_text(message)}


def _input_text(text: str) -> JsonValue:
    return {"type": "input_text", "text": text}


def _input_image(image: Image) -> JsonValue:
    return {"type": "input_image", "image_url": data_url(image)}


def _assistant(message: AssistantMessage) -> Iterable[JsonValue]:
    yield from message.reasoning.items if message.reasoning else ()
    if message.text.strip():
        yield {"role": "assistant", "content": [{"type": "output_text", "text": message.text}]}
    for call in message.tool_calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": wire_name(call.name),
            "arguments": wire_arguments(call.arguments),
        }


class ResponsesReader:
    """Reads events, e.g. {"type":"response.output_text.delta","output_index":0,"delta":"Hi"}."""

    def __init__(self) -> None:
        self.draft = AnswerDraft()
        self._done: set[int] = set()
        self._texts: set[int] = set()

    def read(self, event: JsonObject) -> list[Delta]:
        kind = a_text(event.get("type"))
        at = a_count(event.get("output_index")) or 0
        if kind in _TEXTS:
            return self._say(at, a_text(event.get("delta")))
        if kind in _THOUGHTS:
            return self.draft.think(a_text(event.get("delta")))
        if kind == "response.function_call_arguments.delta":
            self.draft.calls.at(at, "").pieces.append(a_text(event.get("delta")))
            return []
        if kind == "response.output_item.added":
            return self._begin(at, an_object(event.get("item")))
        if kind == "response.output_item.done":
            return self._end_item(at, an_object(event.get("item")))
        return self._read_end(kind, event)

    def _read_end(self, kind: str, event: JsonObject) -> list[Delta]:
        if kind in _ENDS:
            return self._end(an_object(event.get("response")))
        if event.get("object") == "response":  # a server that does not stream sends the response itself
            return self._end(event)
        if kind == "error" or event.get("error"):
            raise failures.from_stream(event.get("error") or event)
        return []

    def _say(self, at: int, text: str) -> list[Delta]:
        """Take visible text; a second message of the same answer begins a paragraph."""
        gap = "\n\n" if text and at not in self._texts and self.draft.has_text else ""
        if text:
            self._texts.add(at)
        return self.draft.say(gap + text)

    def _begin(self, at: int, item: JsonObject) -> list[Delta]:
        if item.get("type") != "function_call":
            return []
        return self.draft.name_call(self.draft.calls.at(at, ""), a_text(item.get("name")))

    def _end_item(self, at: int, item: JsonObject) -> list[Delta]:
        """Take the whole item; for what was streamed it holds the final word."""
        if at in self._done:
            return []
        self._done.add(at)
        match item.get("type"):
            case "function_call":
                news = self._begin(at, item)
                self.draft.calls.at(at, "").replace(a_text(item.get("name")), a_text(item.get("arguments")))
                return news
            case "reasoning" if item.get("encrypted_content"):
                self.draft.reasoning.append({k: v for k, v in item.items() if k not in ("id", "status")})
                return []
            case "message" if at not in self._texts:
                parts = [an_object(part) for part in a_list(item.get("content"))]
                return self._say(at, "".join(a_text(part.get("text") or part.get("refusal")) for part in parts))
            case _:
                return []

    def _end(self, response: JsonObject) -> list[Delta]:
        if response.get("error") or response.get("status") == "failed":
            raise failures.from_stream(response.get("error") or "the provider reported a failed response")
        news: list[Delta] = []
        for at, item in enumerate(map(an_object, a_list(response.get("output")))):
            news += self._end_item(at, item)
        self._count(an_object(response.get("usage")))
        reason = a_text(an_object(response.get("incomplete_details")).get("reason"))
        self.draft.finish = _FINISH.get(reason, "stop")
        self.draft.ended = True
        return news

    def _count(self, usage: JsonObject) -> None:
        details = an_object(usage.get("input_tokens_details"))
        self.draft.usage = Usage(
            a_count(usage.get("input_tokens")) or 0,
            a_count(usage.get("output_tokens")) or 0,
            a_count(details.get("cached_tokens")),
        )
