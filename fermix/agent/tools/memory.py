"""memory_store, memory_recall, memory_forget, memory_sources_list: what the agent keeps of its owner.

All four are the owner's, and a recall may look into the conversations as well. What is stored or forgotten lasts beyond
the conversation, so a turn before which words from outside stand asks first (docs/decisions/0023). What is recalled is
told as it is stored, with where it came from; what was said comes framed as soon as others had a part in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.memory.facts import (
    CATEGORIES,
    Breadth,
    Category,
    Fact,
    Facts,
    admitted,
    by_key,
    by_words,
    origin_of,
    session_id,
    within,
)
from fermix.agent.memory.search import UNFINISHED, Found, Search
from fermix.agent.model import JsonObject, JsonValue, ToolResult
from fermix.agent.risk import why_lasting
from fermix.agent.turn import Turn
from fermix.trust import PolicyClass

CATEGORY = "memory"
MOST_FOUND = 20  # of one recall; more are counted and a narrower one is asked for
MOST_SAID = 8
MOST_SOURCES = 50

_ID: JsonObject = {"type": "integer", "minimum": 1, "description": "the number behind # in a recall"}


_STORE: JsonObject = {
    "type": "object",
    "properties": {
        "category": {
            "type": "string",
            "enum": [*CATEGORIES],
            "description": "identity, preference, interest, goal: about the owner; context: about the work;"
            " directive: how the owner wants you to work",
        },
        "key": {"type": "string", "description": "a short name, e.g. home_city; an equal one is replaced"},
        "value": {"type": "string", "description": "one short fact, in the owner's sense"},
        "id": {**_ID, "description": "replace this memory, in place of a key"},
        "here_only": {"type": "boolean", "description": "true: for this conversation alone"},
    },
    "required": ["value"],
    "additionalProperties": False,
}
_RECALL: JsonObject = {
    "type": "object",
    "properties": {
        "key": {"type": "string", "minLength": 1},
        "query": {"type": "string", "minLength": 1, "maxLength": 1_000},
        "scope": {
            "type": "string",
            "enum": ["current", "owner", "all"],
            "description": "current (default): what holds here; owner: what holds everywhere; all: also what other "
            "conversations keep",
        },
        "source": {
            "type": "string",
            "enum": ["memories", "history", "all"],
            "description": "memories (default); history: what was said in any conversation, by a query; all: both",
        },
    },
    "additionalProperties": False,
}
_FORGET: JsonObject = {
    "type": "object",
    "properties": {"id": _ID, "reason": {"type": "string", "maxLength": 200}},
    "required": ["id"],
    "additionalProperties": False,
}
_NOTHING: JsonObject = {"type": "object", "properties": {}, "additionalProperties": False}


def tools(facts: Facts, search: Search) -> tuple[Capability, ...]:
    """Build the tools."""
    memory = MemoryTools(facts, search)
    return (
        Capability(
            name="memory_store",
            description="Remember one fact for later conversations, or replace one that has changed.",
            parameters=_STORE,
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_WRITE,
            owner_only=True,
            run=memory.store,
            category=CATEGORY,
            when_to_use="when the owner tells something about themselves or the work that will still matter next week",
            outside=False,
            asks=_why_store,
            examples=('{"category": "preference", "key": "tea", "value": "green, without sugar"}',),
            failure_modes=("a value that is too long is refused: store one short fact",),
        ),
        Capability(
            name="memory_recall",
            description="Look up what is remembered, by key or by words.",
            parameters=_RECALL,
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_ONLY,
            owner_only=True,
            run=memory.recall,
            category=CATEGORY,
            when_to_use="when the answer may depend on what the owner said in another conversation",
        ),
        Capability(
            name="memory_forget",
            description="Forget one memory. It is archived, and the owner can restore it.",
            parameters=_FORGET,
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_WRITE,
            owner_only=True,
            run=memory.forget,
            category=CATEGORY,
            when_to_use="when the owner wants something forgotten, or it is no longer true and nothing replaces it",
            outside=False,
            asks=_why_forget,
        ),
        Capability(
            name="memory_sources_list",
            description="List where the memories came from, with how many each brought.",
            parameters=_NOTHING,
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_ONLY,
            owner_only=True,
            run=memory.sources,
            category=CATEGORY,
            when_to_use="when the owner asks where you know things from",
        ),
    )


class MemoryTools:
    """The tools themselves."""

    def __init__(self, facts: Facts, search: Search) -> None:
        self._facts = facts
        self._search = search

    async def store(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        turn, value, origin = context.turn, str(arguments["value"]), origin_of(context.turn, context.exposure.sources)
        memory_id, category = arguments.get("id"), arguments.get("category")
        if isinstance(memory_id, int):
            if not {"key", "here_only"}.isdisjoint(arguments):
                return ToolResult(False, "an id stands in place of key and here_only; give one or the other")
            wanted = category if isinstance(category, str) else None
            fact, notes = await self._facts.replace(memory_id, value, wanted, origin, _editable(turn))
            return _done("stored", fact, notes)
        if not isinstance(category, str) or "key" not in arguments:
            return ToolResult(False, "a new memory needs a category and a key; an id replaces a known one")
        here = turn.key if arguments.get("here_only") is True else None
        draft = admitted(category, str(arguments["key"]), value, conversation=here, trust=turn.trust)
        fact, notes = await self._facts.store(draft, origin)
        return _done("stored", fact, notes)

    async def recall(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        if ("key" in arguments) == ("query" in arguments):
            return ToolResult(False, "give a key or a query, one of them")
        source = arguments.get("source", "memories")
        if source != "memories" and "query" not in arguments:
            return ToolResult(False, "the history is looked through by a query; a key finds memories only")
        remembered = "" if source == "history" else await self._remembered(arguments, context)
        if source == "memories":
            return ToolResult(True, remembered)
        found = await self._search.find(str(arguments["query"]), MOST_SAID)
        lines = [*([remembered] if remembered else []), "Said in conversations:", *_said(found)]
        return ToolResult(True, "\n".join(lines), outside=not all(hit.own for hit in found.hits))

    async def _remembered(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> str:
        known = await self._facts.active()
        breadth = cast("Breadth", arguments.get("scope", "current"))  # one of the schema's words
        looked_at = within(known, breadth, session_id(context.turn.key))
        if "key" in arguments:
            found = by_key(looked_at, str(arguments["key"]))
        else:
            found = by_words(looked_at, str(arguments["query"]))
        return _listed(found, looked_at)

    async def forget(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        memory_id, origin = arguments["id"], origin_of(context.turn, context.exposure.sources)
        assert isinstance(memory_id, int)  # by the schema
        reason = str(arguments.get("reason", ""))
        fact, notes = await self._facts.forget(memory_id, origin, reason, _editable(context.turn))
        return _done("forgotten", fact, notes)

    async def sources(self, _arguments: Mapping[str, JsonValue], _context: ToolContext) -> ToolResult:
        counted = Counter(_source(fact) for fact in await self._facts.active())
        lines = [f"{count} from {source}" for source, count in counted.most_common(MOST_SOURCES)]
        left = len(counted) - len(lines)
        more = [f"({left} more sources)"] if left else []
        return ToolResult(True, "\n".join([*lines, *more]) or "nothing is remembered yet")


def _why_store(arguments: Mapping[str, JsonValue], context: ToolContext) -> str | None:
    """A replacement counts as a rule: the one it replaces may be one."""
    rule = arguments.get("category") == Category.DIRECTIVE or "id" in arguments
    return why_lasting(context.exposure, rule=rule)


def _why_forget(_arguments: Mapping[str, JsonValue], context: ToolContext) -> str | None:
    return why_lasting(context.exposure, rule=True)


def _editable(turn: Turn) -> Callable[[Fact], bool]:
    """Say which facts a turn may change: what holds everywhere, and what its own conversation keeps."""
    here = session_id(turn.key)
    return lambda fact: fact.place.lasting or (fact.place.scope == "conversation" and fact.place.scope_id == here)


def _done(what: str, fact: Fact, notes: Sequence[str]) -> ToolResult:
    return ToolResult(True, "\n".join([f"{what}: {_line(fact)}", *notes]))


def _listed(found: Sequence[Fact], looked_at: Sequence[Fact]) -> str:
    if not found:
        return f"nothing of that is remembered (looked at {len(looked_at)} memories)"
    lines = [f"{_line(fact)} ({_source(fact)}, {fact.updated_at[:10]})" for fact in found[:MOST_FOUND]]
    more = [f"({len(found) - MOST_FOUND} more; ask for less)"] if len(found) > MOST_FOUND else []
    return "\n".join([*lines, *more])


def _said(found: Found) -> list[str]:
    lines = [hit.line for hit in found.hits] or ["nothing that was said holds any of these words"]
    return lines if found.whole else [*lines, UNFINISHED]


def _line(fact: Fact) -> str:
    place = "" if fact.place.lasting else f", {fact.place.scope} only"
    return f"#{fact.id} [{fact.category}{place}] {fact.key}: {fact.value}"


def _source(fact: Fact) -> str:
    origin = fact.origin
    told = f"{origin.type} {origin.name}".strip()
    return f"{told} {origin.description}".strip() if origin.trust == "operator" else f"{told}, a guest"
