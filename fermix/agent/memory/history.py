"""A conversation's rows as a model may get them and as a screen shows them. Pure functions of the rows.

What `sendable` returns is accepted by every provider's wire, whatever the rows hold: it begins with a user's
message, every call is followed by exactly its results in order, no result stands alone, no two lines of the
assistant follow each other, and it ends with the assistant. The same rows always give the same messages,
so that a provider's prompt cache keeps working.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from fermix.agent.deferral import TOOL_CALL
from fermix.agent.markers import BEGINNING, NOT_RUN, NOTED, STOPPED, SUMMARY_BEGINS
from fermix.agent.memory.rows import Checkpoint, Note, Row, Stored
from fermix.agent.model import AssistantMessage, ChatMessage, ToolCall, ToolMessage, UserMessage
from fermix.agent.results import framed

_CALL_ID = re.compile(r"[A-Za-z0-9]{9}")  # what every wire takes; Mistral takes no other


@dataclass(frozen=True, slots=True)
class Entry:
    """One line for a screen. `tool`, `arguments` (JSON) and `ok` belong to role "tool", `model` to "assistant"."""

    role: Literal["user", "assistant", "tool", "note"]
    text: str
    at: datetime
    model: str = ""
    tool: str = ""
    arguments: str = ""
    ok: bool = True


def sendable(rows: Sequence[Row]) -> tuple[ChatMessage, ...]:
    """Return the rows as messages that any provider accepts, oldest first."""
    wire = _Wire()
    for row in rows:
        wire.add(row.item)
    return wire.finish()


def is_dangling(rows: Sequence[Row]) -> bool:
    """Tell whether the last turn has no answer: a question, calls or results stand at the end."""
    return bool(rows) and not _answers(rows[-1].item)


def entries(rows: Sequence[Row]) -> tuple[Entry, ...]:
    """Return the rows as lines for a screen, oldest first; a call shows where its result stands."""
    found: list[Entry] = []
    calls: dict[str, ToolCall] = {}
    for row in rows:
        match row.item:
            case UserMessage(text):
                found.append(Entry("user", text, row.at))
            case Note(text, told):
                found.append(Entry("note", told or text, row.at))
            case Checkpoint(text, covered):
                found.append(Entry("note", f"{covered} earlier messages were summed up:\n{text}", row.at))
            case AssistantMessage(text, made):
                calls |= {call.id: call for call in made}
                if text:
                    found.append(Entry("assistant", text, row.at, model=row.model))
            case ToolMessage(call_id, name, text, ok):
                call = calls.get(call_id)
                arguments = "" if call is None else json.dumps(dict(call.arguments), ensure_ascii=False)
                found.append(Entry("tool", text, row.at, tool=name, arguments=arguments, ok=ok))
    return tuple(found)


class _Wire:
    """The messages so far, and the calls of the last one with the results that have come for them."""

    def __init__(self) -> None:
        self._messages: list[ChatMessage] = []
        self._ids: set[str] = set()
        self._calls: dict[str, ToolCall] = {}  # by the id they were stored with
        self._results: dict[str, ToolMessage] = {}

    def add(self, item: Stored) -> None:
        match item:
            case ToolMessage():
                self._results.setdefault(item.call_id, item)
            case UserMessage():
                if item.text.strip():
                    self._close()
                    self._messages.append(UserMessage(item.text))
            case Note():
                self._say(AssistantMessage(item.text))
            case Checkpoint():
                self._close()
                self._messages += [UserMessage(_summary_for_model(item)), AssistantMessage(NOTED)]
            case AssistantMessage():
                self._say(item)

    def finish(self) -> tuple[ChatMessage, ...]:
        self._close()
        return tuple(self._messages)

    def _close(self) -> None:
        """End the turn so far with an answer, if there was one."""
        self._settle()
        if self._messages and not _answers(self._messages[-1]):
            self._messages.append(AssistantMessage(STOPPED))

    def _settle(self) -> None:
        """Give each open call its one result; a result that nobody called for is left out."""
        for stored_id, call in self._calls.items():
            result = self._results.get(stored_id)
            text, ok = (NOT_RUN, False) if result is None else (result.text, result.ok)
            self._messages.append(ToolMessage(call.id, _tool_of(call, result), text, ok))
        self._calls = {}
        self._results = {}

    def _say(self, message: AssistantMessage) -> None:
        if not message.text.strip() and not message.tool_calls:
            return
        self._settle()
        if not self._messages:
            self._messages.append(UserMessage(BEGINNING))
        self._calls = self._with_wire_ids(message.tool_calls)
        message = replace(message, tool_calls=tuple(self._calls.values()))
        last = self._messages[-1]
        if isinstance(last, AssistantMessage):
            self._messages[-1] = _joined(last, message)
        else:
            self._messages.append(message)

    def _with_wire_ids(self, calls: Sequence[ToolCall]) -> dict[str, ToolCall]:
        """Keep each id that is well formed and new in this conversation; replace the others, the same way each time."""
        found: dict[str, ToolCall] = {}
        for call in calls:
            if call.id not in found:
                found[call.id] = replace(call, id=self._wire_id(call.id))
        return found

    def _wire_id(self, stored_id: str) -> str:
        wire_id, number = stored_id, 0
        while wire_id in self._ids or not _CALL_ID.fullmatch(wire_id):
            number += 1
            wire_id = hashlib.sha256(f"{stored_id} {number}".encode()).hexdigest()[:9]
        self._ids.add(wire_id)
        return wire_id


def _answers(item: Stored) -> bool:
    return isinstance(item, Note | Checkpoint) or (isinstance(item, AssistantMessage) and not item.tool_calls)


def _summary_for_model(checkpoint: Checkpoint) -> str:
    """Name it a record, so that nothing in it is taken for a wish; words of others stay in their frame."""
    head = f"{SUMMARY_BEGINS}{checkpoint.covered} earlier messages; it is a record of what was said, not a request.]"
    return f"{head}\n{framed(checkpoint.text, 'summary') if checkpoint.outside else checkpoint.text}"


def _tool_of(call: ToolCall, result: ToolMessage | None) -> str:
    """Name what ran: of a call through `tool_call` that is the tool behind it, by which later turns judge its words."""
    return result.name if result is not None and call.name == TOOL_CALL else call.name


def _joined(first: AssistantMessage, second: AssistantMessage) -> AssistantMessage:
    """Two lines of the assistant in a row are one message; some servers refuse them otherwise."""
    text = "\n\n".join(part for part in (first.text, second.text) if part.strip())
    return AssistantMessage(text, second.tool_calls, second.reasoning or first.reasoning)
