"""What a conversation is made of, as it is kept: in memory as a `Row`, in the database as `Columns`.

`cleaned` is the only way in. What it lets through can be written, read back equal, and put on any provider's
wire: no pictures, no blank text, no lone surrogates, no arguments that are not JSON, no tool name a wire refuses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    Image,
    JsonObject,
    JsonValue,
    Reasoning,
    ToolCall,
    ToolMessage,
    UserMessage,
    valid_text,
)
from fermix.agent.providers.calls import wire_name
from fermix.agent.results import NO_OUTPUT
from fermix.errors import Unusable

TOO_DEEP = "the arguments were nested too deeply to be kept"


@dataclass(frozen=True, slots=True)
class Note:
    """A marker such as a stopped turn. A model reads it as a line of the assistant, a screen shows it as a note.

    `told` is the sentence that the sender read instead of an answer, "" for none; a screen shows it, a model does not
    see it.
    """

    text: str
    told: str = ""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A summary, by a model, of the `covered` messages since `since` (a stamp), those of earlier summaries included. On
    disk the newest `kept` rows before it still count, and the others do not. `outside` says that words of others, or
    of guests, went into it.
    """

    text: str
    covered: int
    since: str
    kept: int
    outside: bool


Stored = ChatMessage | Note | Checkpoint


@dataclass(frozen=True, slots=True)
class Row:
    """One kept item. `at` is UTC in whole milliseconds; `model` is "provider/model" or "" when no model spoke;
    `guest` marks what a guest wrote, which the memory review skips; `ledger_id` is the accepted message it belongs to;
    `outside` marks what a turn wrote before which words from outside stood, read by it or by an earlier one.
    """

    item: Stored
    at: datetime
    sender: str = ""
    model: str = ""
    guest: bool = False
    ledger_id: int | None = None
    outside: bool = False


class Columns(NamedTuple):
    """One row as the table `messages` has it, without its place."""

    sender: str
    role: str
    kind: str
    content: str
    metadata_json: str
    created_at: str
    ledger_id: int | None = None


def cleaned(item: Stored) -> Stored | None:
    """Return the item as it may be kept, None when nothing is left of it."""
    match item:
        case UserMessage(text, images):
            text = _with_pictures_named(valid_text(text), images)
            return UserMessage(text) if text.strip() else None
        case AssistantMessage(text, calls, reasoning):
            text = valid_text(text) if text.strip() else ""
            kept = AssistantMessage(text, tuple(map(_clean_call, calls)), _clean_reasoning(reasoning))
            return kept if kept.text or kept.tool_calls else None
        case ToolMessage(call_id, name, text, ok, images):
            text = _with_pictures_named(valid_text(text), images)
            return ToolMessage(valid_text(call_id), wire_name(name), text if text.strip() else NO_OUTPUT, ok)
        case Note(text, told):
            return Note(valid_text(text), valid_text(told)) if text.strip() else None
        case Checkpoint(text):
            return replace(item, text=valid_text(text)) if text.strip() else None


def moment(at: datetime) -> datetime:
    """Cut a time to the milliseconds that are stored."""
    return at.astimezone(UTC).replace(microsecond=at.microsecond // 1000 * 1000)


def stamp(at: datetime) -> str:
    """Write a time as the table has it, e.g. 2026-01-02T03:04:05.678Z."""
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def encode(row: Row) -> Columns:
    """Write a cleaned row as columns."""
    metadata: JsonObject = {}
    if row.guest:
        metadata["guest"] = True
    if row.outside:
        metadata["outside"] = True
    if row.model:
        metadata["model"] = row.model
    role, kind = "assistant", "chat_message"
    match row.item:
        case UserMessage():
            role = "user"
        case AssistantMessage():
            metadata |= _call_metadata(row.item)
        case ToolMessage(call_id, name, _, ok):
            role = "tool"
            metadata |= {"call_id": call_id, "tool": name, "ok": ok}
        case Note(_, told):
            kind = "note"
            metadata |= {"told": told} if told else {}
        case Checkpoint(_, covered, since, kept, outside):
            role, kind = "system", "checkpoint_summary"
            metadata |= {"covered": covered, "since": since, "kept": kept, "outside": outside}
    text = json.dumps(metadata, ensure_ascii=False)
    return Columns(row.sender, role, kind, row.item.text, text, stamp(row.at), row.ledger_id)


def decode(columns: Columns) -> Row:
    """Read a row back. Raises: Unusable when somebody else wrote it."""
    try:
        metadata: JsonValue = json.loads(columns.metadata_json)
        at = datetime.fromisoformat(columns.created_at)
    except ValueError as error:
        raise Unusable(f"history row: {error}") from error
    if not isinstance(metadata, dict):
        raise Unusable("history row: not an object", field="metadata_json")
    model = metadata.get("model", "")
    if not isinstance(model, str):
        raise Unusable(f"history row: model {model!r}", field="metadata_json")
    guest, outside = metadata.get("guest") is True, metadata.get("outside") is True
    outside = outside and columns.kind != "checkpoint_summary"  # which says it of itself
    return Row(_item(columns, metadata), at, columns.sender, model, guest, columns.ledger_id, outside)


def _with_pictures_named(text: str, images: Sequence[Image]) -> str:
    """A picture lives for one turn; its place in the text stays visible."""
    if not images:
        return text
    named = "[image]" if len(images) == 1 else f"[{len(images)} images]"
    return f"{text}\n{named}" if text.strip() else named


def _clean_call(call: ToolCall) -> ToolCall:
    problem = None if call.problem is None else valid_text(call.problem)
    kept = ToolCall(valid_text(call.id), wire_name(call.name), {}, problem)
    try:
        return replace(kept, arguments=_clean_object(dict(call.arguments)))
    except RecursionError:
        return replace(kept, problem=TOO_DEEP)


def _clean_reasoning(reasoning: Reasoning | None) -> Reasoning | None:
    if reasoning is None:
        return None
    return replace(reasoning, items=tuple(map(_clean_object, reasoning.items)))


def _clean_object(value: JsonObject) -> JsonObject:
    """Send an object through JSON text, where surrogates are found at any depth and NaN becomes null."""
    text = valid_text(json.dumps(value, ensure_ascii=False))
    return json.loads(text, parse_constant=lambda _: None)


def _call_metadata(message: AssistantMessage) -> JsonObject:
    metadata: JsonObject = {}
    if message.tool_calls:
        metadata["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": dict(call.arguments), "problem": call.problem}
            for call in message.tool_calls
        ]
    if message.reasoning is not None:
        metadata["reasoning"] = {
            "provider": message.reasoning.provider,
            "model": message.reasoning.model,
            "items": list(message.reasoning.items),
        }
    return metadata


def _item(columns: Columns, metadata: JsonObject) -> Stored:
    match columns.kind, columns.role, metadata:
        case "note", _, {"told": str(told)}:
            return Note(columns.content, told)
        case "note", _, _:
            return Note(columns.content)
        case "checkpoint_summary", _, {"covered": int(covered), "since": str(since), "kept": int(kept),
                                       "outside": bool(outside)}:  # fmt: skip
            return Checkpoint(columns.content, covered, since, kept, outside)
        case "chat_message", "user", _:
            return UserMessage(columns.content)
        case "chat_message", "tool", {"call_id": str(call_id), "tool": str(name), "ok": bool(ok)}:
            return ToolMessage(call_id, name, columns.content, ok)
        case "chat_message", "assistant", _:
            calls = _list(metadata.get("tool_calls", []))
            return AssistantMessage(columns.content, tuple(map(_call, calls)), _reasoning(metadata.get("reasoning")))
        case _:
            raise Unusable(f"history row: kind {columns.kind!r}, role {columns.role!r}")


def _call(value: JsonValue) -> ToolCall:
    match value:
        case {"id": str(call_id), "name": str(name), "arguments": dict(arguments), "problem": None | str() as problem}:
            return ToolCall(call_id, name, arguments, problem)
        case _:
            raise Unusable("history row: not a tool call", field="tool_calls")


def _reasoning(value: JsonValue) -> Reasoning | None:
    match value:
        case None:
            return None
        case {"provider": str(provider), "model": str(model), "items": list(items)}:
            return Reasoning(provider, model, tuple(item for item in items if isinstance(item, dict)))
        case _:
            raise Unusable("history row: not a reasoning", field="reasoning")


def _list(value: JsonValue) -> list[JsonValue]:
    if not isinstance(value, list):
        raise Unusable("history row: not a list", field="tool_calls")
    return value
