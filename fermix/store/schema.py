"""Open the file: its mode, its settings, its schema. Called by the writer thread when it starts; all of it blocks.

Nothing but SQLite ever opens the database file: closing any other descriptor of it would drop the locks that
this process holds (DB-01). What Fermix does not know (a newer schema, a changed table) is refused untouched.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, closing
from importlib import resources
from pathlib import Path
from urllib.parse import quote

from fermix.errors import NeedsOperator
from fermix.home import PRIVATE_FILE
from fermix.store.faults import damaged, unusable

MIGRATIONS = (
    "0001_base.sql",
    "0002_ledger.sql",
    "0003_facts.sql",
    "0004_listing.sql",
    "0005_usage.sql",
    "0006_checkpoints.sql",
    "0007_search.sql",
)
LATEST = len(MIGRATIONS)
BUSY_TIMEOUT_S = 5.0  # another process (a backup, a second client) may hold the file this long
MOST_CHECKED_BYTES = 16 * 1_048_576  # a tenth of a second; a kill cannot damage the file, so larger ones may wait
SETTINGS = ("PRAGMA foreign_keys = ON", "PRAGMA trusted_schema = OFF", "PRAGMA synchronous = NORMAL")
HEADER_BYTES = 100
QUICK_CHECK = "PRAGMA quick_check(1)"
OBJECTS = "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY type, name"

Objects = list[tuple[str, str, str]]


def connect(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open the database for writing, make it when it is absent, and bring it to the latest schema.

    Returns whether the content was checked, which happens after an unclean stop unless the file is so large that a
    start would feel it. Raises: NeedsOperator, sqlite3.Error.
    """
    unclean = _beside(path, "-wal").exists()  # SQLite removes this file when it closes well
    with ExitStack() as undo:
        connection = undo.enter_context(closing(_open_or_create(path)))
        check_now = unclean and path.stat().st_size <= MOST_CHECKED_BYTES
        if check_now:
            check_content(connection.execute(QUICK_CHECK).fetchone(), path)
        _configure(connection, path)
        _migrate(connection)
        undo.pop_all()
    return connection, check_now


def reading_address(path: Path) -> str:
    """Return the URI under which the file is opened for reading only."""
    return f"{path.absolute().as_uri()}?mode=ro"


def check_content(row: Sequence[object], path: Path) -> None:
    """Judge the one row of a quick check. Raises: NeedsOperator with its finding."""
    (finding,) = row
    if finding != "ok":
        raise damaged(path, str(finding).splitlines()[-1])


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _open_or_create(path: Path) -> sqlite3.Connection:
    try:
        if not path.exists() or path.stat().st_size == 0:
            return _create(path)
        check_schema(path, path)
        if stat.S_IMODE(path.stat().st_mode) != PRIVATE_FILE:
            path.chmod(PRIVATE_FILE)  # a restored copy may have come with a wider mode
    except OSError as error:
        raise unusable(path, error.strerror or repr(error)) from error
    return open_existing(path)


def _create(path: Path) -> sqlite3.Connection:
    """Make the file 0600 from its first moment, whatever the umask: SQLite copies the mode of a file we name."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.") as model:
        os.fchmod(model.fileno(), PRIVATE_FILE)
        connection = _open(path, f"mode=rwc&modeof={quote(model.name)}")
        connection.execute("PRAGMA user_version").fetchone()  # the file is opened by the first statement
    return connection


def _open(path: Path, query: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{query}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,  # transactions are begun and ended by us, in one place
    )


def _configure(connection: sqlite3.Connection, path: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise NeedsOperator(
            f"the file system of {path} cannot hold a shared database", advice="put FERMIX_HOME on a local disk"
        )
    for setting in SETTINGS:
        connection.execute(setting)


def check_schema(path: Path, named: Path) -> None:
    """Compare what is stored with what this program knows, before anything may be written.

    `named` is the file that a person knows, when `path` is a copy of it. Raises: NeedsOperator, sqlite3.Error.
    """
    if path.stat().st_size < HEADER_BYTES:
        raise damaged(named, "it is cut off")  # SQLite would take it for an empty one
    with closing(look(path)) as connection:
        version, stored = _read_schema(connection, named)
    if version > LATEST:
        raise NeedsOperator(
            f"{named} was written by a newer Fermix (schema {version}, this one knows {LATEST})",
            advice="run the newer Fermix, or point FERMIX_HOME elsewhere",
        )
    differing = sorted({name for _, name, _ in set(stored) ^ set(_expected(version))})
    if differing:
        raise NeedsOperator(
            f"the schema of {named} is not the one Fermix made: {', '.join(differing[:5])}",
            advice="put a backup back with `fermix restore FILE`, or move it away to start empty",
        )


def _read_schema(connection: sqlite3.Connection, named: Path) -> tuple[int, Objects]:
    try:
        return version_of(connection), connection.execute(OBJECTS).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
            raise
        raise damaged(named, str(error)) from error  # our SQL is right, so the file's header is not


def look(path: Path) -> sqlite3.Connection:
    """Open a file that nobody else writes, for reading only."""
    return _open(path, _way_to_look(path))


def open_existing(path: Path) -> sqlite3.Connection:
    """Open a file that is there as any program does that takes its turn with others."""
    return _open(path, "mode=rw")


def _way_to_look(path: Path) -> str:
    """Choose the gentlest mode that still sees what was last committed."""
    if _beside(path, "-journal").exists():
        return "mode=rw"  # a stop while the file was first made; only a writer may roll that back
    if _beside(path, "-wal").exists():
        return "mode=ro"
    return "mode=ro&immutable=1"  # leaves no side file behind


def _expected(version: int) -> Objects:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _migrate(connection, up_to=version)
        return connection.execute(OBJECTS).fetchall()


def version_of(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _migrate(connection: sqlite3.Connection, up_to: int = LATEST) -> None:
    """Apply what is missing, each migration and its number in one transaction."""
    folder = resources.files("fermix.store") / "migrations"
    for number in range(version_of(connection) + 1, up_to + 1):
        script = (folder / MIGRATIONS[number - 1]).read_text(encoding="utf-8")
        try:
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")
        finally:
            if connection.in_transaction:
                connection.rollback()
