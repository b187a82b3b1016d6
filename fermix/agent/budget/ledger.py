"""The table `usage`: what is written of each call, and sums of it. Plain functions for `Database.run`, and one query.

A call is written when it begins and again when it ends; the second time whole, so that it stands there even if the
first was lost on a full disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fermix.message import ConversationKey
from fermix.store import Connection, Database, SqlValue

_COLUMNS = (
    "id, at, day, purpose, provider, model, channel, chat_id, thread_scope, turn_id, outcome,"
    " input_tokens, cached_tokens, output_tokens, money, estimated, held_input, held_output, held_money"
)
_WRITE = (
    f"INSERT INTO usage ({_COLUMNS}) VALUES ({', '.join('?' * 19)}) ON CONFLICT (id) DO UPDATE SET"
    " outcome = excluded.outcome, input_tokens = excluded.input_tokens, cached_tokens = excluded.cached_tokens,"
    " output_tokens = excluded.output_tokens, money = excluded.money, estimated = excluded.estimated"
)
_LOSE = (
    "UPDATE usage SET outcome = 'lost', estimated = 1,"
    " input_tokens = held_input, output_tokens = held_output, money = held_money WHERE outcome = 'open'"
)
_SPENT = (
    "SELECT day, SUM(COALESCE(money, 0)), SUM(input_tokens + output_tokens) FROM usage"
    " WHERE day >= ? AND (money IS NULL OR money > 0) GROUP BY day"
)
_SUMS = (
    "SELECT day, purpose, provider, model, COUNT(*), SUM(input_tokens), SUM(COALESCE(cached_tokens, 0)),"
    " SUM(output_tokens), SUM(COALESCE(money, 0)), SUM(money IS NULL), SUM(estimated)"
    " FROM usage WHERE day >= ? AND outcome != 'open' GROUP BY day, purpose, provider, model"
    " ORDER BY day DESC, SUM(COALESCE(money, 0)) DESC, SUM(input_tokens + output_tokens) DESC LIMIT ?"
)


@dataclass(frozen=True, slots=True)
class Row:
    """One call. Money in millionths of a dollar, None when no price is known; see the migration for the columns."""

    id: int
    at: str
    day: str
    purpose: str
    provider: str
    model: str
    key: ConversationKey | None
    turn_id: str
    outcome: str
    input_tokens: int
    cached_tokens: int | None
    output_tokens: int
    money: int | None
    estimated: bool
    held_input: int
    held_output: int
    held_money: int | None


@dataclass(frozen=True, slots=True)
class Sum:
    """The calls of one day, purpose and model; `unpriced` of them are not in `money`."""

    day: str
    purpose: str
    provider: str
    model: str
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    money: int
    unpriced: int
    estimated: int


@dataclass(frozen=True, slots=True)
class Found:
    """What an earlier process left: the last id, how many calls it did not end, and (day, money, tokens)."""

    last_id: int
    lost: int
    spent: Sequence[tuple[str, int, int]]


def write(connection: Connection, row: Row) -> None:
    """Write a call down, or what became of it."""
    key: tuple[SqlValue, ...] = row.key or (None, None, None)
    who = (row.id, row.at, row.day, row.purpose, row.provider, row.model)
    used = (row.input_tokens, row.cached_tokens, row.output_tokens, row.money, row.estimated)
    held = (row.held_input, row.held_output, row.held_money)
    connection.execute(_WRITE, (*who, *key, row.turn_id, row.outcome, *used, *held))


def take_over(connection: Connection, since_day: str) -> Found:
    """Settle what a dead process held as spent, and sum up what limits look at since that day."""
    lost = connection.execute(_LOSE).rowcount
    (last_id,) = connection.execute("SELECT COALESCE(MAX(id), 0) FROM usage").fetchone()
    return Found(last_id, lost, connection.execute(_SPENT, (since_day,)).fetchall())


async def sums(database: Database, since_day: str, most: int) -> list[Sum]:
    """Return the sums since a day, the latest day first and in it the dearest."""
    await database.run(_nothing)  # behind all that was posted
    rows = await database.read(_SUMS, (since_day, most))
    return [Sum(*row) for row in rows]  # pyright: ignore[reportArgumentType] - the columns of the query above


def _nothing(_: Connection) -> None:
    """Wait for what came before."""
