"""Tool calls as they arrive in pieces, and the ids and names they travel under. Used by every wire.

What must stay true: only a JSON object becomes arguments; anything else becomes a `problem` the model can read,
with a short preview. Ids are ours, nine characters of A-Z, a-z, 0-9, because the strictest wire wants exactly that.
"""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from fermix.agent.model import JsonObject, JsonValue, ToolCall, ToolSchema
from fermix.agent.providers.fields import load_json

PREVIEW_CHARS = 200
CUT_OFF = "arguments cut off at the output limit; send a shorter call, or split the work"
_ALPHABET = string.ascii_letters + string.digits
_ID_LENGTH = 9
_NAME_CHARS = 64  # OpenAI and Anthropic: ^[a-zA-Z0-9_-]{1,64}$
_JSON = json.JSONDecoder()


@dataclass(slots=True)
class CallDraft:
    """One call while it arrives. `key` is the wire's own id, only for telling calls apart."""

    key: str
    name: str = ""
    pieces: list[str] = field(default_factory=list[str])

    def add_name(self, piece: str) -> None:
        """Join name pieces; a server that sends the whole name again does not double it."""
        self.name = piece if piece.startswith(self.name) else self.name + piece

    def replace(self, name: str, arguments: str) -> None:
        """Take the final word of a server that repeats the whole call at its end."""
        self.name = name or self.name
        self.pieces = [arguments] if arguments else self.pieces


class CallDrafts:
    """The calls of one answer, in the order they began; `slot` is the wire's index of a call."""

    def __init__(self) -> None:
        self._drafts: list[CallDraft] = []
        self._by_slot: dict[int, CallDraft] = {}

    def __iter__(self) -> Iterator[CallDraft]:
        return iter(self._drafts)

    def __len__(self) -> int:
        return len(self._drafts)

    def at(self, slot: int | None, key: str) -> CallDraft:
        """Return the draft for a piece: by its index, by its id, else the last; a new id is a new call."""
        draft = self._find(slot, key)
        if draft is None:
            draft = CallDraft(key)
            self._drafts.append(draft)
        draft.key = draft.key or key
        if slot is not None:
            self._by_slot[slot] = draft
        return draft

    def get(self, slot: int) -> CallDraft | None:
        """Return the call that began at this index."""
        return self._by_slot.get(slot)

    def clear(self) -> None:
        self._drafts.clear()
        self._by_slot.clear()

    def _find(self, slot: int | None, key: str) -> CallDraft | None:
        if slot is not None:
            draft = self._by_slot.get(slot)
            return None if draft is not None and key and draft.key and key != draft.key else draft
        if key:
            return next((draft for draft in self._drafts if draft.key == key), None)
        return self._drafts[-1] if self._drafts else None


def finished_call(draft: CallDraft, tools: Sequence[ToolSchema], *, cut: bool) -> ToolCall:
    """Turn a draft into a call; `cut` says the answer ended at the output limit."""
    schema = next((tool for tool in tools if tool.name == draft.name), None)
    needs_arguments = schema is not None and bool(schema.parameters.get("required"))
    arguments, problem = _arguments(draft.pieces, needs_arguments=needs_arguments)
    if problem and cut:
        problem = CUT_OFF
    return ToolCall(new_call_id(), draft.name, arguments, problem)


def new_call_id() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(_ID_LENGTH))


def wire_name(name: str) -> str:
    """Return a name every server takes. Models invent names, and one given back spoils all later turns (PRV-09)."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:_NAME_CHARS] or "unnamed"


def wire_arguments(arguments: Mapping[str, JsonValue]) -> str:
    return json.dumps(dict(arguments), ensure_ascii=False, separators=(",", ":"))


def _arguments(pieces: Sequence[str], *, needs_arguments: bool) -> tuple[JsonObject, str | None]:
    joined = "".join(pieces)
    if not joined.strip():
        return {}, "this tool needs arguments and got none" if needs_arguments else None
    try:
        value = load_json(joined)
    except ValueError as error:
        again = _sent_again(pieces, joined)
        return (again, None) if again is not None else ({}, _unusable(f"not valid JSON ({error})", joined))
    if isinstance(value, dict):
        return value, None
    return {}, _unusable("not a JSON object", joined)


def _unusable(why: str, text: str) -> str:
    shown = text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}…"
    return f"the arguments are {why}: {shown}"


def _sent_again(pieces: Sequence[str], joined: str) -> JsonObject | None:
    """Find the object when a server sent it whole more than once: as growing pieces, or twice over (PRV-05)."""
    grows = all(later.startswith(earlier) for earlier, later in pairwise(pieces))
    for text in ([pieces[-1]] if len(pieces) > 1 and grows else []) + _repeats(joined):
        try:
            value = load_json(text)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return None


def _repeats(joined: str) -> list[str]:
    """Return the text once when it is the same text several times over."""
    try:
        _, end = _JSON.raw_decode(joined)
    except (ValueError, RecursionError):
        return []
    once = joined[:end]
    return [once] if once and joined == once * (len(joined) // end) else []
