"""The index in the database: fill it, ask it, empty it. Every function that takes a connection is one transaction.

What is in and how far that reaches change in the same transaction, so a stop at any moment loses nothing and doubles
nothing. Rows never change, and a contentless index can take no word back; a broken one is emptied and filled again.

Which rows: what was said, and summaries. Of a tool's result its beginning, enough to find it by a name or a title:
whole results would be nine tenths of the index and bury what people said. No notes, no fences, nothing blank.
"""

from __future__ import annotations

from collections.abc import Sequence

from fermix.agent.memory.search.words import words
from fermix.agent.results import without_frame
from fermix.store import Connection, SqlValue, filling

CHUNK_ROWS = 200
CHUNK_CHARS = 60_000  # some milliseconds of the thread that also writes
MOST_CHARS = 20_000  # of one message
MOST_TOOL_CHARS = 2_000
NEWEST = 1_000  # hits of one term; a word that is in most messages says little about old ones

_ROWS = f"SELECT id, role, kind, substr(content, 1, {MOST_CHARS}) FROM messages WHERE id"
NEW = f"{_ROWS} > ? ORDER BY id LIMIT {CHUNK_ROWS}"
OLD = f"{_ROWS} < ? ORDER BY id DESC LIMIT {CHUNK_ROWS}"
PROGRESS = (
    "SELECT low, high, (SELECT COALESCE(MAX(id), 0) FROM messages) FROM search_progress WHERE source = 'messages'"
)
_HITS = (
    "SELECT ?, rowid FROM (SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?"
    f" ORDER BY rowid DESC LIMIT {NEWEST})"
)


def add_new(connection: Connection) -> bool:
    """Index a chunk of what is newer than all that is in; tell whether there may be more."""
    _, high, newest = _progress(connection)
    if newest <= high:
        return False
    rows = _fitting(connection.execute(NEW, (high,)).fetchall())
    _insert(connection, rows)
    connection.execute("UPDATE search_progress SET high = ? WHERE source = 'messages'", (rows[-1][0],))
    return True


def add_old(connection: Connection) -> bool:
    """Index a chunk of what is older than all that is in, the newest of it first; tell whether there may be more."""
    low, _, _ = _progress(connection)
    if low <= 1:
        return False
    rows = _fitting(connection.execute(OLD, (low,)).fetchall())
    _insert(connection, rows[::-1])
    reached = rows[-1][0] if rows else 1
    connection.execute("UPDATE search_progress SET low = ? WHERE source = 'messages'", (reached,))
    return True


def empty(connection: Connection) -> None:
    """Forget all words; every row is then to be indexed again."""
    connection.execute("INSERT INTO messages_fts (messages_fts) VALUES ('delete-all')")
    connection.execute(
        "UPDATE search_progress SET (low, high) = (SELECT COALESCE(MAX(id), 0) + 1, COALESCE(MAX(id), 0) FROM messages)"
        " WHERE source = 'messages'"
    )


def one_by_one(terms: Sequence[str]) -> tuple[str, list[SqlValue]]:
    """Return the query for the newest rows of each term, as (place of the term, row), and its parameters."""
    return _union([f'"{term}"' for term in terms])


def together(groups: Sequence[Sequence[str]]) -> tuple[str, list[SqlValue]]:
    """Return the query for the newest rows that hold all terms of a group, as (place of the group, row)."""
    return _union([" AND ".join(f'"{term}"' for term in group) for group in groups])


def _union(matches: Sequence[str]) -> tuple[str, list[SqlValue]]:
    parameters: list[SqlValue] = []
    for place, match in enumerate(matches):
        parameters += (place, match)
    return " UNION ALL ".join([_HITS] * len(matches)), parameters


def _progress(connection: Connection) -> tuple[int, int, int]:
    low, high, newest = connection.execute(PROGRESS).fetchone()
    return int(low), int(high), int(newest)


_Row = tuple[int, str, str, str]


def _fitting(rows: Sequence[_Row]) -> Sequence[_Row]:
    """Return the first rows, at least one, that together are short enough for one transaction."""
    chars = 0
    for place, row in enumerate(rows):
        chars += len(row[3])
        if place and chars > CHUNK_CHARS:
            return rows[:place]
    return rows


def _insert(connection: Connection, rows: Sequence[_Row]) -> None:
    made = (
        (number, " ".join(words(_text(role, content))))
        for number, role, kind, content in rows
        if _counts(kind, content)
    )
    with filling(connection):
        connection.executemany("INSERT INTO messages_fts (rowid, words) VALUES (?, ?)", made)


def _counts(kind: str, content: str) -> bool:
    return kind in ("chat_message", "checkpoint_summary") and bool(content.strip())


def _text(role: str, content: str) -> str:
    return without_frame(content)[:MOST_TOOL_CHARS] if role == "tool" else content
