"""The kept texts of the derived files: every rebuild, and everything an owner wrote into one by hand.

Functions over connections are bodies of transactions, as in `rows.py`. What an owner wrote is kept for ever; of the
rebuilds, which the trail of changes could make again, the newest stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fermix.agent.memory.facts.rows import MINE, US
from fermix.errors import Unusable
from fermix.store import Connection, SqlValue

Source = Literal["rebuild", "rollback", "manual_edit", "imported"]
BY_HAND = frozenset({"manual_edit", "imported"})
MOST_REBUILDS = 200  # of one file; a few kilobytes each

_TYPE = "prompt_file"
_MINE = f"{MINE} AND resource_type = '{_TYPE}' AND name = ?"
_COLUMNS = "revision, name, sha256, content, mutation_source, change_id, created_at"

NEWEST = f"SELECT {_COLUMNS} FROM resource_revisions WHERE {_MINE} ORDER BY revision DESC LIMIT 1"
ONE = f"SELECT {_COLUMNS} FROM resource_revisions WHERE {_MINE} AND revision = ?"
LIST = f"SELECT {_COLUMNS} FROM resource_revisions WHERE {_MINE} AND revision < ? ORDER BY revision DESC LIMIT ?"
KNOWN = f"SELECT 1 FROM resource_revisions WHERE {_MINE} AND sha256 = ? LIMIT 1"


@dataclass(frozen=True, slots=True)
class Revision:
    """One kept text. `change_id` is the newest change of a memory that it knows of."""

    number: int
    name: str
    sha256: str
    content: str
    source: str
    change_id: int
    created_at: str

    @property
    def by_hand(self) -> bool:
        return self.source in BY_HAND


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def revision_of(row: Sequence[SqlValue]) -> Revision:
    """Read one row of the queries above."""
    number, name, sha256, content, source, change_id, created_at = row
    if not isinstance(number, int) or not isinstance(change_id, int):
        raise Unusable("revision row: not a number")
    return Revision(number, str(name), str(sha256), str(content), str(source), change_id, str(created_at))


def add(connection: Connection, name: str, content: str, source: Source, change_id: int, at: str) -> Revision:
    """Keep a text as the newest revision of its file."""
    row = connection.execute(NEWEST, (*US, name)).fetchone()
    parent = None if row is None else revision_of(row).number
    made = Revision((parent or 0) + 1, name, digest(content), content, source, change_id, at)
    size_bytes = len(content.encode("utf-8"))
    connection.execute(
        "INSERT INTO resource_revisions (agent_id, owner_id, resource_type, name, revision, parent, sha256, content,"
        " size_bytes, mutation_source, change_id, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*US, _TYPE, name, made.number, parent, made.sha256, content, size_bytes, source, change_id, at),
    )  # fmt: skip
    connection.execute(
        f"DELETE FROM resource_revisions WHERE {_MINE} AND mutation_source NOT IN ('manual_edit', 'imported')"
        " AND revision <= ?",
        (*US, name, made.number - MOST_REBUILDS),
    )
    return made
