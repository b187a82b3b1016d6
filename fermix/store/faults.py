"""What SQLite's own errors mean to the operator. The store calls `explain` wherever one can surface.

An error that only a bug of ours can cause (wrong SQL, a broken constraint) is not translated: it stays itself.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from fermix.errors import FermixError, NeedsOperator, Unavailable

PRIMARY_CODE = 0xFF  # extended result codes keep the primary one in their low byte
UNREADABLE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
UNWRITABLE = frozenset(
    {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_AUTH}
)
BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


def explain(error: sqlite3.Error, path: Path) -> FermixError | None:
    """Translate what the machine or another process caused; None when it is a bug of ours."""
    extended = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    code = extended & PRIMARY_CODE
    if extended == sqlite3.SQLITE_CORRUPT_VTAB:
        return IndexDamaged(f"an index in {path} is damaged")
    if code in UNREADABLE:
        return damaged(path, str(error))
    if (full := no_room(error, path)) is not None:
        return full
    if code in UNWRITABLE:
        return unusable(path, str(error))
    if code in BUSY:
        return Unavailable(
            f"{path} is in use by another program: close that, for example a database viewer, and try again"
        )
    return None


def no_room(error: sqlite3.Error, path: Path) -> NeedsOperator | None:
    """Say that the disk of a file is full; None when the error is another one."""
    if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & PRIMARY_CODE != sqlite3.SQLITE_FULL:
        return None
    return NeedsOperator(f"the disk that holds {path} is full", advice="free some space there")


def unusable(path: Path, reason: str) -> NeedsOperator:
    """Say that the place of the file is wrong, not its content."""
    return NeedsOperator(
        f"cannot use {path}: {reason}", advice="make its folder writable and see that its disk is not full"
    )


class Damaged(NeedsOperator):
    """A database cannot be trusted; `finding` is what SQLite says of it."""

    def __init__(self, message: str, *, advice: str, finding: str) -> None:
        super().__init__(message, advice=advice)
        self.finding = finding


class IndexDamaged(Unavailable):
    """A full-text index is damaged. Who owns it makes it anew from what it was made of; the file itself is sound."""


def damaged(path: Path, finding: str) -> Damaged:
    """Say that the file cannot be trusted. It is never deleted: the owner decides what happens to it."""
    return Damaged(
        f"{path} is damaged ({finding})",
        advice="stop Fermix with `fermix stop`, then put a backup back with `fermix restore FILE`, "
        "or move it away (also -wal and -shm) to start empty",
        finding=finding,
    )
