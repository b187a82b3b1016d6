"""What clients may ask about the memory. The same functions answer the verb where no daemon runs: cli/offline.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from fermix.agent.memory.facts import AT_THE_TERMINAL, SHAPES, Change, Fact, Facts, Origin, Revision
from fermix.daemon.params import Params, Result, checked
from fermix.daemon.socket import Call
from fermix.errors import Unusable
from fermix.protocol.memory import (
    ChangeRow,
    ForgetMemory,
    ListMemories,
    ListRevisions,
    MemoryHistory,
    MemoryRow,
    OneMemory,
    OneRevision,
    RestoreMemory,
    RevisionRow,
)

PAGE = 200
LAST = 2**62  # behind every number of a row


Answer = Callable[[Facts, Params], Awaitable[Result]]


def memory_methods(facts: Facts) -> Mapping[str, Callable[[Call], Awaitable[Result]]]:
    """Return the methods by name."""

    def bound(answer: Answer) -> Callable[[Call], Awaitable[Result]]:
        return lambda call: answer(facts, call.params)

    return {name: bound(answer) for name, answer in ANSWERS.items()}


async def _list(facts: Facts, params: Params) -> Result:
    wish = checked(ListMemories, params)
    found = await facts.page(_row_number(wish.get("after", 0)), PAGE + 1, archived=wish["archived"])
    more = len(found) > PAGE
    notes = () if more else await facts.hand_written()
    return {"memories": [memory_row(fact) for fact in found[:PAGE]], "more": more, "notes": list(notes)}


async def _show(facts: Facts, params: Params) -> Result:
    memory_id = _row_number(checked(OneMemory, params)["id"])
    fact = await facts.find(memory_id)
    if fact is None:
        raise _no_such(memory_id)
    changes = await facts.changes(memory_id, PAGE)
    return {"memory": memory_row(fact), "changes": [_change(change) for change in changes]}


async def _forget(facts: Facts, params: Params) -> Result:
    wish = checked(ForgetMemory, params)
    fact, notes = await facts.forget(_row_number(wish["id"]), AT_THE_TERMINAL, wish.get("reason", ""))
    return {"memory": memory_row(fact), "notes": list(notes)}


async def _restore(facts: Facts, params: Params) -> Result:
    wish = checked(RestoreMemory, params)
    change = wish.get("change")
    fact, notes = await facts.restore(_row_number(wish["id"]), None if change is None else _row_number(change))
    return {"memory": memory_row(fact), "notes": list(notes)}


async def _history(facts: Facts, params: Params) -> Result:
    wish = checked(MemoryHistory, params)
    memory_id = wish.get("id")
    wanted = None if memory_id is None else _row_number(memory_id) or LAST
    found = await facts.changes(wanted, PAGE + 1, _row_number(wish.get("before", LAST)))
    if memory_id is not None and not found and await facts.find(_row_number(memory_id)) is None:
        raise _no_such(memory_id)
    return {"changes": [_change(change) for change in found[:PAGE]], "more": len(found) > PAGE}


async def _revisions(facts: Facts, params: Params) -> Result:
    wish = checked(ListRevisions, params)
    found = await facts.revisions(wish["name"], PAGE + 1, _row_number(wish.get("before", LAST)))
    return {"revisions": [_revision_row(revision) for revision in found[:PAGE]], "more": len(found) > PAGE}


async def _revision(facts: Facts, params: Params) -> Result:
    wish = checked(OneRevision, params)
    revision = await facts.revision(wish["name"], _row_number(wish["revision"]))
    return {"revision": _revision_row(revision), "text": revision.content}


async def _rollback(facts: Facts, params: Params) -> Result:
    wish = checked(OneRevision, params)
    changed, notes = await facts.roll_back(wish["name"], _row_number(wish["revision"]))
    return {"changed": changed, "notes": list(notes)}


def _no_such(memory_id: int) -> Unusable:
    told = f"there is no memory with the id {memory_id}; `fermix memory list --archived` names them all"
    return Unusable(told, user_text=told)


def _row_number(value: int) -> int:
    """Keep a number within what SQLite holds; outside of that there is no row."""
    return value if 0 <= value <= LAST else 0


def memory_row(fact: Fact) -> MemoryRow:
    """Write a memory for the socket."""
    shown = next((name for name, shape in SHAPES.items() if shape.target == fact.place.target), "")
    origin = fact.origin
    return {
        "id": fact.id,
        "scope": fact.place.scope,
        "category": fact.category.value,
        "key": fact.key,
        "value": fact.value,
        "shown_in": shown,
        "created_at": fact.created_at,
        "updated_at": fact.updated_at,
        "archived_at": fact.archived_at,
        "archived_by": fact.archived_by,
        "archive_reason": fact.archive_reason,
        "by": origin.by,
        "trust": origin.trust.value,
        "source": _source(origin),
        "note": origin.description,
        "message_id": origin.message_id,
        "session": origin.session,
        "turn": origin.run,
    }


def _change(change: Change) -> ChangeRow:
    return {
        "id": change.id,
        "memory_id": change.memory_id,
        "action": change.action,
        "key": change.key,
        "category": change.state.category.value,
        "value": change.state.value,
        "archived": change.state.archived,
        "by": change.origin.by,
        "trust": change.origin.trust.value,
        "source": _source(change.origin),
        "note": change.origin.description,
        "reason": change.reason,
        "at": change.created_at,
    }


def _revision_row(revision: Revision) -> RevisionRow:
    return {
        "revision": revision.number,
        "name": revision.name,
        "source": revision.source,
        "at": revision.created_at,
        "sha256": revision.sha256,
        "size_bytes": len(revision.content.encode("utf-8")),
    }


def _source(origin: Origin) -> str:
    return f"{origin.type} {origin.name}".strip()


ANSWERS: Mapping[str, Answer] = {
    "memory.list": _list,
    "memory.show": _show,
    "memory.forget": _forget,
    "memory.restore": _restore,
    "memory.rollback": _rollback,
    "memory.history": _history,
    "memory.revisions": _revisions,
    "memory.revision": _revision,
}
