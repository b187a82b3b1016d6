"""Writes to a full-text index, kept apart from all other writes that share a commit with them.

SQLite keeps what is put into such an index until the savepoint around it ends, and finds damage then. That must happen
inside the transaction that it belongs to: a damaged index never takes another job with it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from fermix.store.faults import IndexDamaged


@contextmanager
def filling(connection: sqlite3.Connection) -> Generator[None]:
    """Wrap the writes to an index. Raises: IndexDamaged, sqlite3.Error."""
    connection.execute("SAVEPOINT words")
    try:
        yield
        connection.execute("RELEASE words")
    except sqlite3.IntegrityError as error:  # it lost count of its own parts
        raise IndexDamaged(f"a full-text index is damaged: {error}") from error
