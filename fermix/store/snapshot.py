"""A copy of the live database through SQLite's own backup call, and the check of such a copy.

`backup` and `restore` come in here. The source may be in use: the copy shows one moment of it, and no writer waits.
A copy is a file of its own that nobody writes, so it is looked at in the gentlest mode, which leaves nothing beside it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fermix.errors import NeedsOperator
from fermix.store import schema
from fermix.store.faults import damaged, explain, no_room

Report = Callable[[str, float], None]
"""Told now and then what goes on and which share of it is done, 0 to 1."""

PAGES_AT_A_TIME = 4_096  # 16 MB; between two of them progress is told
COUNTED = (
    "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'"
    " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a database holds: the number of its schema, and how many rows each table has."""

    schema: int
    rows: dict[str, int]


def copy_database(source: Path, target: Path, report: Report) -> Contents:
    """Copy what is committed now to a file that does not exist yet, check the copy whole, and return what it holds.

    Raises: NeedsOperator when the source is damaged, no database of ours or unreadable, or the target has no room;
    Unavailable when another program keeps the source locked.
    """
    try:
        with closing(_connect(source)) as live:
            live.execute("BEGIN")  # one moment is copied, whatever is written meanwhile
            there = _contents(live)
            _copy(live, target, report)
    except sqlite3.Error as error:
        raise explain(error, source) or error from error
    if check_copy(target, source, report) != there:
        raise damaged(source, "its copy does not hold the same rows")
    return there


def check_copy(path: Path, named: Path, report: Report) -> Contents:
    """Check every page, row and index of a copy and its schema; `named` is what errors call it.

    Raises: NeedsOperator.
    """
    report("checking", 0.0)
    try:
        schema.check_schema(path, named)
        with closing(schema.look(path)) as connection:
            schema.check_content(connection.execute("PRAGMA integrity_check(1)").fetchone(), named)
            found = _contents(connection)
    except sqlite3.Error as error:
        raise explain(error, named) or error from error
    report("checking", 1.0)
    return found


def _connect(source: Path) -> sqlite3.Connection:
    """Open like any other program that writes: that leaves nothing beside the file. Where nobody can write, look."""
    if not source.exists():
        raise NeedsOperator(f"there is no {source} yet", advice="talk to Fermix first: then there is something to keep")
    if all(os.access(path, os.W_OK) for path in (source, source.parent)):
        return schema.open_existing(source)
    return schema.look(source)


def _copy(live: sqlite3.Connection, target: Path, report: Report) -> None:
    def tell(_status: int, remaining: int, total: int) -> None:
        report("copying", 1.0 - remaining / max(total, 1))

    with closing(sqlite3.connect(target)) as copy:
        try:
            live.backup(copy, pages=PAGES_AT_A_TIME, progress=tell)
        except sqlite3.Error as error:
            if (full := no_room(error, target)) is not None:
                raise full from error
            raise


def _contents(connection: sqlite3.Connection) -> Contents:
    names = [str(name) for (name,) in connection.execute(COUNTED)]
    rows = {name: int(connection.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0]) for name in names}
    return Contents(schema.version_of(connection), rows)
