"""The database under use: transactions, errors, reads, closing. Real files throughout."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest

from fermix.errors import FermixError, NeedsOperator, Unavailable
from fermix.store import Connection, Database, schema
from fermix.store import database as database_module
from tests.requirements import covers

BOUND_S = 5.0

ADD = (
    "INSERT INTO messages (agent_id, owner_id, channel, chat_id, sender, role, kind, content, created_at) "
    "VALUES ('main', 'default', 'cli', 'a', 's', 'user', 'chat_message', ?, '2026-01-01T00:00:00.000Z')"
)
CONTENTS = "SELECT content FROM messages ORDER BY id"


def add(content: str, *, then: Exception | None = None):
    def fn(connection: Connection) -> str:
        connection.execute(ADD, (content,))
        if then is not None:
            raise then
        return content

    return fn


async def contents(database: Database) -> list[str]:
    return [str(content) for (content,) in await database.read(CONTENTS)]


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


class Gate:
    """Keeps the writer thread busy, so that what follows waits together."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._entered = threading.Event()

    def block(self, _: Connection) -> None:
        self._entered.set()
        assert self._open.wait(BOUND_S)

    async def hold(self, database: Database, group: asyncio.TaskGroup) -> None:
        group.create_task(database.run(self.block))
        assert await asyncio.get_running_loop().run_in_executor(None, self._entered.wait, BOUND_S)

    def release(self) -> None:
        self._open.set()


async def test_what_run_returned_is_committed_and_read_at_once(folder: Path):
    async with Database.open(folder / "memory.db") as database:
        result = await database.run(add("one"))

        assert result == "one"
        assert await contents(database) == ["one"]


@covers("db.atomic")
async def test_a_failing_transaction_leaves_nothing(folder: Path):
    async with Database.open(folder / "memory.db") as database:
        with pytest.raises(LookupError, match="halfway"):
            await database.run(add("half", then=LookupError("halfway")))

        assert await contents(database) == []


@covers("db.atomic")
async def test_writes_of_one_commit_fail_each_for_itself(folder: Path):
    """Sharing a commit is an economy: a neighbour's failure must not be seen by anyone else."""
    gate = Gate()
    async with Database.open(folder / "memory.db") as database:
        async with asyncio.TaskGroup() as group:
            await gate.hold(database, group)
            good = group.create_task(database.run(add("good")))
            bad = group.create_task(raised_by(database.run(add("bad", then=LookupError("mine")))))
            wrong = group.create_task(raised_by(database.run(lambda c: c.execute("SELECT nothing FROM nowhere"))))
            last = group.create_task(database.run(add("last"), durable=True))
            await asyncio.sleep(0)
            gate.release()

        assert (good.result(), last.result()) == ("good", "last")
        assert isinstance(bad.result(), LookupError)
        assert isinstance(wrong.result(), sqlite3.OperationalError)
        assert await contents(database) == ["good", "last"]


async def test_a_transaction_that_sqlite_gave_up_fails_for_all_who_shared_it(folder: Path):
    """On a full disk SQLite may roll everything back by itself; nobody may then be told of a success."""

    def lose(connection: Connection) -> None:
        connection.execute("ROLLBACK")
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    gate = Gate()
    async with Database.open(folder / "memory.db") as database:
        async with asyncio.TaskGroup() as group:
            await gate.hold(database, group)
            fates = [group.create_task(raised_by(database.run(fn))) for fn in (add("a"), lose, add("b"))]
            await asyncio.sleep(0)
            gate.release()

        assert [type(fate.result()) for fate in fates] == [NeedsOperator] * 3
        assert await contents(database) == []
        assert await database.run(add("c")) == "c"


async def test_waiting_writes_share_commits_and_keep_their_order(folder: Path):
    gate = Gate()
    commits: list[str] = []
    wanted = [str(number) for number in range(150)]
    async with Database.open(folder / "memory.db") as database:
        await database.run(lambda c: c.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None))
        commits.clear()
        async with asyncio.TaskGroup() as group:
            await gate.hold(database, group)
            for content in wanted:
                group.create_task(database.run(add(content)))
            await asyncio.sleep(0)
            gate.release()

        assert await contents(database) == wanted
        assert len(commits) == 1 + 3  # the gate's own, then 150 writes at 64 to a commit


async def test_writes_of_one_round_of_the_loop_share_a_commit(folder: Path):
    """Issue "The gateway", numbers: also when the writer has nothing else to do and could begin with the first."""
    commits: list[str] = []
    async with Database.open(folder / "memory.db") as database:
        await database.run(lambda c: c.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None))
        commits.clear()
        async with asyncio.TaskGroup() as group:
            for content in ("a", "b", "c"):
                group.create_task(database.run(add(content), durable=True))
            database.post(add("d"))

        assert await contents(database) == ["d", "a", "b", "c"]
        assert len(commits) == 1


async def test_a_durable_write_is_synced_and_the_next_is_not(folder: Path):
    def level(connection: Connection) -> int:
        (value,) = connection.execute("PRAGMA synchronous").fetchone()
        return value

    async with Database.open(folder / "memory.db") as database:
        levels = [await database.run(level, durable=durable) for durable in (False, True, False)]

        assert levels == [1, 2, 1]  # NORMAL, FULL, NORMAL


async def test_a_cancelled_caller_does_not_undo_its_write(folder: Path):
    gate = Gate()
    async with Database.open(folder / "memory.db") as database:
        async with asyncio.TaskGroup() as group:
            await gate.hold(database, group)
            writing = group.create_task(database.run(add("kept")))
            await asyncio.sleep(0)
            writing.cancel()
            gate.release()

        await database.run(add("after it"))  # one that is waited for: writes are done in their order

        assert writing.cancelled()
        assert await contents(database) == ["kept", "after it"]


async def test_cancelled_owner_closes_cleanly_and_keeps_what_was_queued(folder: Path):
    path = folder / "memory.db"
    gate = Gate()
    entered = asyncio.Event()

    async def own() -> None:
        async with Database.open(path) as database, asyncio.TaskGroup() as group:
            await gate.hold(database, group)
            group.create_task(database.run(add("queued")))
            entered.set()
            await asyncio.sleep(0)
            await asyncio.get_running_loop().create_future()

    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
        owner = group.create_task(own())
        await entered.wait()
        await asyncio.sleep(0)
        owner.cancel()
        for _ in range(10):  # the owner is on its way out and has said stop while the write still waits
            await asyncio.sleep(0)
        gate.release()

    assert files(folder) == ["memory.db"]
    async with Database.open(path) as database:
        assert await contents(database) == ["queued"]


async def test_closing_waits_for_the_disk_only_so_long(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """A daemon has ten seconds to stop; the thread still ends its transaction and closes the file by itself."""
    monkeypatch.setattr(database_module, "CLOSING_S", 0.01)
    gate = Gate()
    async with asyncio.TaskGroup() as group:
        async with Database.open(folder / "memory.db") as database:
            await gate.hold(database, group)
            writing = group.create_task(database.run(add("kept")))
            await asyncio.sleep(0)
        assert "the database still writes" in caplog.text
        gate.release()
        await asyncio.wait_for(writing, BOUND_S)

    async with Database.open(folder / "memory.db") as database:
        assert await contents(database) == ["kept"]


async def test_a_closed_database_refuses(folder: Path):
    async with Database.open(folder / "memory.db") as database:
        pass

    with pytest.raises(Unavailable, match="closed"):
        await database.run(add("late"))
    with pytest.raises(Unavailable, match="closed"):
        await database.read(CONTENTS)


async def test_the_reader_cannot_write(folder: Path):
    async with Database.open(folder / "memory.db") as database:
        with pytest.raises(Exception, match="readonly"):
            await database.read("DELETE FROM messages")


async def test_wrong_sql_stays_a_bug(folder: Path):
    async with Database.open(folder / "memory.db") as database:
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await database.read("SELECT 1 FROM nowhere")


async def test_a_long_reader_never_locks_out_writers(folder: Path):
    """DB-03: one writer, WAL and BEGIN IMMEDIATE; a reader that stays open costs no write."""
    path = folder / "memory.db"
    async with Database.open(path) as database:
        await database.run(add("first"))
        with sqlite3.connect(path, isolation_level=None) as reader:
            reader.execute("BEGIN")
            reader.execute(CONTENTS).fetchall()
            for number in range(50):
                await database.run(add(str(number)))
            seen = reader.execute(CONTENTS).fetchall()
            reader.execute("COMMIT")
        reader.close()

        assert seen == [("first",)]
        assert len(await contents(database)) == 51


async def test_two_databases_on_one_file_lose_nothing(folder: Path):
    """DB-03: another program with the same file waits its turn behind `busy_timeout`."""
    path = folder / "memory.db"
    async with Database.open(path) as first, Database.open(path) as second:
        async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(first.run(add(f"first {number}")))
                group.create_task(second.run(add(f"second {number}")))

        assert len(await contents(first)) == 80
        assert await contents(first) == await contents(second)


async def test_a_file_held_by_another_program_is_unavailable_not_broken(folder: Path, monkeypatch: pytest.MonkeyPatch):
    path = folder / "memory.db"
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.01)
    async with Database.open(path) as database:
        with sqlite3.connect(path, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable, match="in use by another program"):
                await database.run(add("no"))
            other.execute("ROLLBACK")
        other.close()

        assert await database.run(add("yes")) == "yes"


def raised_by(running):
    """Await it and return what it raised."""

    async def catch() -> Exception | None:
        try:
            await running
        except (LookupError, sqlite3.Error, FermixError) as error:
            return error
        return None

    return catch()
