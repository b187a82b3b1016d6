"""The facts in the database. Every function that takes a connection is the body of one transaction of `Database.run`.

`write` is the only one that changes a row, and it adds the change to the trail in the same transaction: the row is
always what its last change says. Nothing is ever deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from fermix.agent.memory.facts.fact import CATEGORIES, OWNER_ID, Action, Category, Draft, Fact, Origin, Place, Scope
from fermix.agent.memory.facts.fact import Target as FileTarget
from fermix.errors import LimitReached, Unusable
from fermix.home import AGENT_ID
from fermix.store import Connection, SqlValue
from fermix.trust import Trust

MOST_ACTIVE = 2_000  # about a megabyte in memory; far more than anybody tells, and a loop of a model ends here

_ORIGIN = (
    "trust, source_type, source_id, source_name, source_description, source_message_id, ledger_id, session_id, run_id"
)
_FACT = (
    f"id, scope_type, scope_id, promote_target, category, key, value, created_by, {_ORIGIN}, change_id, created_at,"
    " updated_at, archived_at, archived_by, archive_reason"
)
MINE = "agent_id = ? AND owner_id = ?"
US = (AGENT_ID, OWNER_ID)

ACTIVE = f"SELECT {_FACT} FROM memories WHERE {MINE} AND archived_at IS NULL ORDER BY change_id DESC"
PAGE = f"SELECT {_FACT} FROM memories WHERE {MINE} AND id > ? AND (? OR archived_at IS NULL) ORDER BY id LIMIT ?"
ONE = f"SELECT {_FACT} FROM memories WHERE {MINE} AND id = ?"
CHANGES = (
    f"SELECT c.id, c.memory_id, c.action, m.key, c.category, c.value, c.archived, c.changed_by, {_ORIGIN}, c.reason,"
    " c.created_at FROM memory_changes AS c JOIN"
    " (SELECT id AS memory, key FROM memories WHERE agent_id = ? AND owner_id = ?) AS m ON m.memory = c.memory_id"
    " WHERE (? = 0 OR c.memory_id = ?) AND c.id < ? ORDER BY c.id DESC LIMIT ?"
)
NEWEST_CHANGE = f"SELECT COALESCE(MAX(change_id), 0) FROM memories WHERE {MINE} AND promote_target = ?"


@dataclass(frozen=True, slots=True)
class State:
    """What can change of a fact."""

    category: Category
    value: str
    archived: bool


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the trail: what was done, and what the fact was afterwards."""

    id: int
    memory_id: int
    action: str
    key: str
    state: State
    origin: Origin
    reason: str
    created_at: str


@dataclass(frozen=True, slots=True)
class Act:
    """Who changes something, when and why."""

    origin: Origin
    at: str
    reason: str = ""


def active(connection: Connection) -> tuple[Fact, ...]:
    """Read what is remembered now, the newest change first."""
    return tuple(map(fact_of, connection.execute(ACTIVE, US)))


def find(connection: Connection, memory_id: int) -> Fact | None:
    """Read one fact, archived or not."""
    row = connection.execute(ONE, (*US, memory_id)).fetchone()
    return None if row is None else fact_of(row)


def put(connection: Connection, draft: Draft, act: Act) -> Fact:
    """Store a draft in the place of the fact with its key, or as a new one; what is equal already stays untouched.

    Raises: LimitReached when no more fit.
    """
    row = connection.execute(
        f"SELECT {_FACT} FROM memories WHERE {MINE} AND scope_type = ? AND scope_id = ? AND key = ?",
        (*US, draft.place.scope, draft.place.scope_id, draft.key),
    ).fetchone()
    state = State(draft.category, draft.value, archived=False)
    if row is None:
        _check_room(connection)
        return _change(connection, _insert(connection, draft, act), state, "store", act)
    return write(connection, fact_of(row), state, "store", act)


def write(connection: Connection, fact: Fact, state: State, action: Action, act: Act) -> Fact:
    """Bring a fact into a state; nothing happens when it is in it. Raises: LimitReached when no more fit."""
    if state == state_of(fact):
        return fact
    if not fact.active and not state.archived:
        _check_room(connection)
    return _change(connection, fact.id, state, action, act)


def state_of(fact: Fact) -> State:
    """Return what of a fact a change would keep."""
    return State(fact.category, fact.value, archived=not fact.active)


def state_after(connection: Connection, memory_id: int, change_id: int) -> State | None:
    """Return what a fact was after its newest change up to this one, None when it was not there yet."""
    row = connection.execute(
        "SELECT category, value, archived FROM memory_changes WHERE memory_id = ? AND id <= ? ORDER BY id DESC LIMIT 1",
        (memory_id, change_id),
    ).fetchone()
    return None if row is None else State(CATEGORIES[str(row[0])], str(row[1]), archived=bool(row[2]))


def is_change_of(connection: Connection, memory_id: int, change_id: int) -> bool:
    """Tell whether a number names a change of this fact."""
    query = "SELECT 1 FROM memory_changes WHERE memory_id = ? AND id = ?"
    return connection.execute(query, (memory_id, change_id)).fetchone() is not None


def shown_in(connection: Connection, target: FileTarget) -> tuple[Fact, ...]:
    """Read all facts of a file, archived ones too."""
    query = f"SELECT {_FACT} FROM memories WHERE {MINE} AND promote_target = ? ORDER BY id"
    return tuple(map(fact_of, connection.execute(query, (*US, target))))


def fact_of(row: Sequence[SqlValue]) -> Fact:
    """Read one row of the queries above. Raises: Unusable for what Fermix never wrote."""
    memory_id, scope, scope_id, target, category, key, value, by, *rest = row
    origin, (change_id, created_at, updated_at, *archive) = _origin(by, rest[:9]), rest[9:]
    return Fact(
        _number(memory_id), Place(_scope(scope), str(scope_id), _target(target)), CATEGORIES[str(category)], str(key),
        str(value), origin, _number(change_id), str(created_at), str(updated_at), *map(_text, archive),
    )  # fmt: skip


def change_of(row: Sequence[SqlValue]) -> Change:
    """Read one row of `CHANGES`."""
    change_id, memory_id, action, key, category, value, archived, by, *rest = row
    state = State(CATEGORIES[str(category)], str(value), archived=bool(archived))
    reason, created_at = rest[9:]
    return Change(
        _number(change_id), _number(memory_id), str(action), str(key), state, _origin(by, rest[:9]), str(reason),
        str(created_at),
    )  # fmt: skip


def _insert(connection: Connection, draft: Draft, act: Act) -> int:
    """Make the row; what stands in it comes with its first change."""
    place = draft.place
    values = (
        *US, place.scope, place.scope_id, place.target, draft.category, draft.key, draft.value, act.origin.by,
        *_columns(act.origin), 0, act.at, act.at,
    )  # fmt: skip
    cursor = connection.execute(
        "INSERT INTO memories (agent_id, owner_id, scope_type, scope_id, promote_target, category, key, value,"
        f" created_by, {_ORIGIN}, change_id, created_at, updated_at) VALUES ({_places(values)})",
        values,
    )
    return _number(cursor.lastrowid)


def _change(connection: Connection, memory_id: int, state: State, action: Action, act: Act) -> Fact:
    origin = act.origin
    values = (
        memory_id, action, state.category, state.value, state.archived, origin.by, *_columns(origin), act.reason,
        act.at,
    )  # fmt: skip
    change_id = connection.execute(
        f"INSERT INTO memory_changes (memory_id, action, category, value, archived, changed_by, {_ORIGIN}, reason,"
        f" created_at) VALUES ({_places(values)})",
        values,
    ).lastrowid
    archive = (act.at, origin.by, act.reason) if state.archived else (None, None, None)
    connection.execute(
        f"UPDATE memories SET category = ?, value = ?, created_by = ?, ({_ORIGIN}) = ({_places(_columns(origin))}),"
        " change_id = ?, updated_at = ?, archived_at = ?, archived_by = ?, archive_reason = ? WHERE id = ?",
        (state.category, state.value, origin.by, *_columns(origin), change_id, act.at, *archive, memory_id),
    )
    changed = find(connection, memory_id)
    assert changed is not None  # written just now, in this transaction
    return changed


def _check_room(connection: Connection) -> None:
    query = f"SELECT COUNT(*) FROM memories WHERE {MINE} AND archived_at IS NULL"
    (count,) = connection.execute(query, US).fetchone()
    if count >= MOST_ACTIVE:
        told = f"{MOST_ACTIVE} facts are remembered and no more fit; forget some that are no longer true"
        raise LimitReached(told, limit="memories", user_text=told)


def _columns(origin: Origin) -> tuple[SqlValue, ...]:
    return (
        origin.trust.value, origin.type, origin.id, origin.name, origin.description, origin.message_id,
        origin.ledger_id, origin.session, origin.run,
    )  # fmt: skip


def _origin(by: SqlValue, columns: Sequence[SqlValue]) -> Origin:
    trust, kind, source, name, description, message_id, ledger_id, session, run = columns
    return Origin(
        str(by), Trust(str(trust)), str(kind), str(source), str(name), str(description), str(message_id),
        None if ledger_id is None else _number(ledger_id), str(session), str(run),
    )  # fmt: skip


def _places(values: Sequence[SqlValue]) -> str:
    return ", ".join("?" * len(values))


def _number(value: SqlValue) -> int:
    if not isinstance(value, int):
        raise Unusable(f"memory row: {value!r} is no number")
    return value


def _text(value: SqlValue) -> str | None:
    return None if value is None else str(value)


def _scope(value: SqlValue) -> Scope:
    for scope in get_args(Scope):
        if scope == value:
            return scope
    raise Unusable(f"memory row: scope {value!r}")


def _target(value: SqlValue) -> FileTarget:
    for target in get_args(FileTarget):
        if target == value:
            return target
    raise Unusable(f"memory row: target {value!r}")
