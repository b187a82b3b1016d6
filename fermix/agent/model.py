"""What goes to a model and what comes back, without a vendor in it. Providers translate to their wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

JsonValue = None | bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"]
JsonObject = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Image:
    """A picture for a model: the whole bytes and their mime type."""

    mime: str
    data: bytes


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish to run a tool.

    `id` is ours: nine characters of A-Z, a-z, 0-9, unique in its conversation; providers map it to their wire.
    `problem` is None, or says why the arguments cannot be used (cut off, not a JSON object); such a call is
    answered with that text and never runs, and `arguments` is then empty.
    """

    id: str
    name: str
    arguments: Mapping[str, JsonValue]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A provider's raw reasoning of one message, replayed only to the provider and model that issued it."""

    provider: str
    model: str
    items: tuple[JsonObject, ...]


@dataclass(frozen=True, slots=True)
class UserMessage:
    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """`text` may be empty only beside tool calls."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: Reasoning | None = None


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The one result of one call; follows the assistant message that made it."""

    call_id: str
    name: str
    text: str
    ok: bool
    images: tuple[Image, ...] = ()


ChatMessage = UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """One tool as a model sees it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One call. `system` parts stand in cache order, stable ones first, and must be byte-identical between
    turns as far as they are stable. The answer is at most `max_output_tokens` long when given.
    """

    system: tuple[str, ...]
    messages: tuple[ChatMessage, ...]
    tools: tuple[ToolSchema, ...] = ()
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call or of a whole turn. `cached_tokens` is part of `input_tokens`, None when unreported."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int | None = None

    def __add__(self, other: Usage) -> Usage:
        both = (self.cached_tokens, other.cached_tokens)
        cached = None if both == (None, None) else (both[0] or 0) + (both[1] or 0)
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens, cached)


Purpose = Literal["turn", "compaction"]
"""What a model call is for: a step of a turn, or the summary that makes room in a conversation."""

FinishReason = Literal["stop", "tool_calls", "length", "refusal"]


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer. `provider` and `model` say who really spoke, after any fallback."""

    text: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage
    finish: FinishReason
    provider: str
    model: str
    reasoning: Reasoning | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's thinking; never part of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The model began to write a call of this tool."""

    name: str


Delta = TextDelta | ReasoningDelta | ToolCallDelta


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives back. A failure is a value, because the model must read it; `denied` marks a refusal
    by trust, policy or sandbox. `outside` says that the text holds words of others although the tool's own do not.
    """

    ok: bool
    text: str
    images: tuple[Image, ...] = ()
    denied: bool = False
    outside: bool = False


def valid_text(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates, which no wire and no file can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text
