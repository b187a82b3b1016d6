"""The file itself: how it is made, recognised, refused, and what survives a kill."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fermix.errors import NeedsOperator
from fermix.store import Database, schema
from tests.requirements import covers
from tests.store.test_database import add, contents, files

ROOT = Path(__file__).parents[2]


def modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}


@covers("home.db")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o777])
async def test_the_file_is_private_from_its_first_moment(folder: Path, mask: int):
    before = os.umask(mask)
    try:
        async with Database.open(folder / "memory.db") as database:
            await database.run(add("one"))
            found = modes(folder)
    finally:
        os.umask(before)

    assert found == {"memory.db": 0o600, "memory.db-wal": 0o600, "memory.db-shm": 0o600}
    assert modes(folder) == {"memory.db": 0o600}


async def test_a_restored_copy_with_a_wide_mode_is_made_private(folder: Path):
    path = folder / "memory.db"
    async with Database.open(path):
        pass
    path.chmod(0o644)

    async with Database.open(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_any_name_is_taken_literally(folder: Path):
    path = folder / "a b%20?mode=ro#c.db"
    async with Database.open(path) as database:
        await database.run(add("one"))

    assert files(folder) == [path.name]


def test_the_list_of_migrations_is_the_folder():
    folder = Path(schema.__file__).parent / "migrations"

    assert sorted(file.name for file in folder.glob("*.sql")) == list(schema.MIGRATIONS)
    assert [int(name[:4]) for name in schema.MIGRATIONS] == list(range(1, len(schema.MIGRATIONS) + 1))


async def test_a_second_start_keeps_schema_and_rows(folder: Path):
    path = folder / "memory.db"
    async with Database.open(path) as database:
        await database.run(add("one"))
    async with Database.open(path) as database:
        assert await contents(database) == ["one"]
        assert await database.read("PRAGMA user_version") == [(schema.LATEST,)]
        assert await database.read("PRAGMA journal_mode") == [("wal",)]


async def test_a_failing_migration_leaves_the_old_schema(folder: Path, monkeypatch: pytest.MonkeyPatch):
    path = folder / "memory.db"
    async with Database.open(path) as database:
        await database.run(add("one"))
    version = schema.LATEST
    broken = folder / "9999_broken.sql"
    broken.write_text("CREATE TABLE extra (a); CREATE TABLE extra (a);", encoding="utf-8")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, str(broken)))
    monkeypatch.setattr(schema._migrate, "__defaults__", (len(schema.MIGRATIONS),))

    with pytest.raises(sqlite3.OperationalError, match="already exists"):
        async with Database.open(path):
            pass

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (version,)
        assert connection.execute("SELECT name FROM sqlite_schema WHERE name = 'extra'").fetchall() == []


async def test_a_newer_schema_is_refused_untouched(folder: Path):
    path = folder / "memory.db"
    async with Database.open(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {schema.LATEST + 7}")
    before = path.read_bytes()

    with pytest.raises(NeedsOperator, match=f"newer Fermix .schema {schema.LATEST + 7}"):
        async with Database.open(path):
            pass

    assert path.read_bytes() == before
    assert files(folder) == ["memory.db"]


@pytest.mark.parametrize(
    "change",
    ["DROP INDEX messages_by_conversation", "ALTER TABLE messages ADD COLUMN extra", "CREATE TABLE guest (a)"],
)
async def test_a_schema_changed_by_hand_is_refused_with_the_name(folder: Path, change: str):
    path = folder / "memory.db"
    async with Database.open(path):
        pass
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(change)

    with pytest.raises(NeedsOperator, match=r"not the one Fermix made: (messages|guest)") as refused:
        async with Database.open(path):
            pass

    assert "backup" in refused.value.advice


async def test_another_programs_database_is_left_alone(folder: Path):
    path = folder / "memory.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    before = path.read_bytes()

    with pytest.raises(NeedsOperator, match="bookmarks"):
        async with Database.open(path):
            pass

    assert path.read_bytes() == before


async def test_a_file_of_garbage_is_named_and_never_deleted(folder: Path):
    path = folder / "memory.db"
    path.write_bytes(b"these are not the pages you are looking for" * 200)
    before = path.read_bytes()

    with pytest.raises(NeedsOperator, match=r"memory\.db is damaged") as refused:
        async with Database.open(path):
            pass

    assert "move it away" in refused.value.advice
    assert path.read_bytes() == before


async def fill_and_spoil(path: Path) -> None:
    """Make a file whose schema is fine and whose content is not."""
    async with Database.open(path) as database:
        await database.run(lambda c: c.executemany("INSERT INTO sqlite_sequence VALUES (?, 1)", [("x" * 200,)] * 500))
    with path.open("r+b") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(size_bytes - 8192)
        file.write(b"\xa5" * 4096)


async def test_damage_inside_is_found_by_the_check_in_the_background(folder: Path):
    path = folder / "memory.db"
    await fill_and_spoil(path)

    async with Database.open(path) as database:
        with pytest.raises(NeedsOperator, match=r"memory\.db is damaged"):
            await database.check()


async def test_damage_inside_is_found_at_once_after_an_unclean_stop(folder: Path):
    path = folder / "memory.db"
    await fill_and_spoil(path)
    path.with_name("memory.db-wal").touch()

    with pytest.raises(NeedsOperator, match=r"memory\.db is damaged"):
        async with Database.open(path):
            pass


async def test_a_large_file_is_checked_in_the_background_also_after_an_unclean_stop(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Issue "Memory that lasts", numbers: the check of a gigabyte takes seconds; a start may not."""
    path = folder / "memory.db"
    await fill_and_spoil(path)
    path.with_name("memory.db-wal").touch()
    monkeypatch.setattr(schema, "MOST_CHECKED_BYTES", path.stat().st_size - 1)

    async with Database.open(path) as database:
        with pytest.raises(NeedsOperator, match=r"memory\.db is damaged"):
            await database.check()


async def test_a_file_spoiled_under_way_is_found_by_reads_and_by_the_check(folder: Path):
    path = folder / "memory.db"
    async with Database.open(path):
        pass
    async with Database.open(path) as database:
        spoil_beginning(path)
        with pytest.raises(NeedsOperator, match=r"memory\.db is damaged"):
            await database.check()
        with pytest.raises(NeedsOperator, match=r"memory\.db is damaged"):
            await contents(database)


def spoil_beginning(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"no longer a database")


async def test_a_file_system_without_shared_memory_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Network file systems cannot hold a WAL; a database in memory answers the same way."""
    monkeypatch.setattr(schema, "_create", lambda _: sqlite3.connect(":memory:", isolation_level=None))

    with pytest.raises(NeedsOperator, match="cannot hold a shared database"):
        async with Database.open(folder / "memory.db"):
            pass


async def test_a_sound_file_passes_the_check(folder: Path):
    async with Database.open(folder / "memory.db") as database:
        await database.check()
        await database.check()


WRITE_UNTIL_KILLED = """
import asyncio, sys
from pathlib import Path
from fermix.store import Database
from tests.store.test_database import add

async def main():
    async with Database.open(Path(sys.argv[1])) as database:
        for number in range(1_000_000):
            await database.run(add(str(number)), durable=number % 3 == 0)
            print(number, flush=True)

asyncio.run(main())
"""


def write_until_killed(path: Path) -> list[int]:
    """Return the numbers whose write had returned in the process that was killed."""
    command = [sys.executable, "-c", WRITE_UNTIL_KILLED, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = [int(child.stdout.readline()) for _ in range(60)]
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().splitlines(keepends=True)
    return told + [int(line) for line in rest if line.endswith("\n")]


@covers("db.atomic", "db.canonical")
async def test_every_awaited_write_survives_kill_9(folder: Path):
    """DB-10: once `run` has returned, the row is there, whatever happens to the process."""
    path = folder / "memory.db"
    told = write_until_killed(path)
    assert path.with_name("memory.db-wal").exists()

    async with Database.open(path) as database:
        kept = [int(content) for content in await contents(database)]
        assert kept[: len(told)] == told
        assert kept == list(range(len(kept)))
        assert await database.read("PRAGMA quick_check") == [("ok",)]


WRITE_A_HUNDRED = """
import asyncio, sys
from pathlib import Path
from fermix.store import Database
from tests.store.test_database import add

async def main():
    async with Database.open(Path(sys.argv[1])) as database:
        for number in range(100):
            await database.run(add(f"child {number}"))

asyncio.run(main())
"""


async def test_two_processes_that_hammer_one_file_corrupt_nothing(folder: Path):
    """DB-01: checking, reading and closing here must not drop the locks that keep the other process out."""
    path = folder / "memory.db"
    async with Database.open(path) as database, asyncio.timeout(30):
        child = start_writing(path)
        number = 0
        while child.poll() is None or number < 100:
            await database.run(add(f"own {number}"))
            number += 1
            if number % 20 == 0:
                async with Database.open(path) as second:
                    await second.check()
        child.wait(5)

        assert child.returncode == 0
        assert await database.read("PRAGMA quick_check") == [("ok",)]
        kept = await contents(database)
    assert [content for content in kept if content.startswith("own")] == [f"own {n}" for n in range(number)]
    assert [content for content in kept if content.startswith("child")] == [f"child {n}" for n in range(100)]


def start_writing(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITE_A_HUNDRED, str(path)], cwd=ROOT)


def stop_while_making(path: Path) -> None:
    """Leave what a kill leaves between the pages and the end of the very first commit: a journal to roll back."""
    journal = path.with_name(f"{path.name}-journal")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")  # the journal counts its pages by its size
        connection.execute("PRAGMA user_version = 0")
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE half (a)")
        connection.execute("INSERT INTO half VALUES (1)")
        written = journal.read_bytes()
        connection.execute("COMMIT")
    journal.write_bytes(written)


async def test_a_stop_while_the_file_is_made_costs_nothing(folder: Path):
    path = folder / "memory.db"
    stop_while_making(path)

    async with Database.open(path) as database:
        await database.run(add("one"))

        assert await contents(database) == ["one"]
