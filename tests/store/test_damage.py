"""Files that a crash, a disk or a stray hand has spoiled: whatever it is, the file opens sound, or one sentence says
what to do, and a backup brings everything back.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fermix.errors import NeedsOperator, Unavailable
from fermix.home import Home
from fermix.store import Database, schema
from fermix.store.backup import make_backup
from fermix.store.restore import restore_backup
from tests.store.homes import NOW, make_home, messages_of, quiet
from tests.store.test_database import add, contents
from tests.store.test_schema import ROOT

PAGE_BYTES = 4_096
SAID = [f"message {number} {'x' * 300}" for number in range(200)]
INBOX = (
    "INSERT INTO inbox (channel, message_id, trust, commands, message_json, media, accepted_at)"
    " VALUES ('cli', ?, 'operator', 1, ?, 0, '2026-01-01T00:00:00.000Z')"
)
SPOILED: dict[str, Callable[[bytes], bytes]] = {
    "garbage": lambda page: b"\xa5" * len(page),
    "zeros": lambda page: bytes(len(page)),
    "another page": lambda page: page[PAGE_BYTES // 2 :] + page[: PAGE_BYTES // 2],
}


async def full_home(root: Path) -> Home:
    """A home whose every table and index has pages of its own."""
    home = await make_home(root, *SAID)
    async with Database.open(home.database) as database:
        await database.run(lambda c: c.executemany(INBOX, [(f"m{number}", "x" * 300) for number in range(200)]))
    return home


def pages(home: Home) -> dict[str, int]:
    """The first page of each table and index, by its name."""
    with closing(sqlite3.connect(home.database)) as connection:
        return dict(connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 0"))


def spoil(home: Home, page: int, how: Callable[[bytes], bytes], *, start: int = 0) -> None:
    with home.database.open("r+b") as file:
        file.seek((page - 1) * PAGE_BYTES + start)
        whole = file.read(PAGE_BYTES - start)
        file.seek((page - 1) * PAGE_BYTES + start)
        file.write(how(whole))


async def judged(home: Home) -> NeedsOperator:
    """Start as a daemon does, with its check, and return what it says. Nothing but that sentence may come out."""
    with pytest.raises(NeedsOperator) as raised:
        async with asyncio.timeout(5), Database.open(home.database) as database:
            await database.check()
    return raised.value


@pytest.mark.parametrize("how", sorted(SPOILED))
@pytest.mark.parametrize("where", ["messages", "messages_by_conversation", "messages_shown", "inbox", "inbox_by_age"])
async def test_a_spoiled_page_is_found_and_a_backup_brings_everything_back(tmp_path: Path, where: str, how: str):
    """Issue "Memory that lasts", crash tests: corrupt page in the messages, in an index, in the ledger."""
    home = await full_home(tmp_path / "home")
    saved = make_backup(home, tmp_path / "out.zip", NOW, quiet).path
    spoil(home, pages(home)[where], SPOILED[how])

    said = str(await judged(home))
    with pytest.raises(NeedsOperator, match=r"memory\.db is damaged"):
        make_backup(home, tmp_path / "other.zip", NOW, quiet)
    restore_backup(home, saved, NOW, quiet)

    assert "memory.db is damaged" in said
    assert "`fermix stop`" in said
    assert "`fermix restore FILE`" in said
    assert not (tmp_path / "other.zip").exists()
    assert await messages_of(home) == SAID


@pytest.mark.parametrize("how", sorted(SPOILED))
@pytest.mark.parametrize("start", [0, 16, 40, 100])
async def test_a_spoiled_header_is_found_and_a_backup_brings_everything_back(tmp_path: Path, start: int, how: str):
    home = await full_home(tmp_path / "home")
    saved = make_backup(home, tmp_path / "out.zip", NOW, quiet).path
    spoil(home, 1, SPOILED[how], start=start)

    assert "`fermix restore FILE`" in str(await judged(home))
    restore_backup(home, saved, NOW, quiet)
    assert await messages_of(home) == SAID


@pytest.mark.parametrize("kept_bytes", [1, 100, 4_095, 4_096, 8_192, 50_000])
async def test_a_file_cut_short_is_found(tmp_path: Path, kept_bytes: int):
    home = await full_home(tmp_path / "home")
    os.truncate(home.database, kept_bytes)

    assert "`fermix restore FILE`" in str(await judged(home))


async def test_a_page_spoiled_while_running_is_said_to_who_reads_and_who_writes(tmp_path: Path):
    """Nothing but the sentence comes out of a read, a write or a check; what is not touched goes on."""
    home = await full_home(tmp_path / "home")
    async with asyncio.timeout(5), Database.open(home.database) as database:
        for name in ("messages", "messages_by_conversation"):
            spoil(home, pages(home)[name], SPOILED["garbage"])
        attempts: list[Awaitable[object]] = [contents(database), database.run(add("late")), database.check()]
        for attempt in attempts:
            with pytest.raises(NeedsOperator, match=r"is damaged.*fermix restore FILE"):
                await attempt


async def while_open(path: Path, copy: Path) -> None:
    """Leave in `copy` what a kill leaves: the file as it was, and all messages in the log beside it."""
    async with Database.open(path) as database:
        for said in SAID:
            await database.run(add(said))
        snap(path, copy)


def snap(path: Path, copy: Path) -> None:
    copy.mkdir()
    for name in (path.name, f"{path.name}-wal"):
        shutil.copyfile(path.with_name(name), copy / name)


async def opened(path: Path) -> list[str]:
    """Open as a daemon does, check, and write: it must be as good as new. Returns what was kept."""
    async with asyncio.timeout(5), Database.open(path) as database:
        kept = await contents(database)
        await database.check()
        await database.run(add("after"))
        assert await contents(database) == [*kept, "after"]
        assert await database.read("PRAGMA integrity_check") == [("ok",)]
    return kept


@pytest.mark.slow
async def test_a_log_cut_off_or_garbled_anywhere_costs_only_what_came_behind(tmp_path: Path):
    """Issue "Memory that lasts", crash tests: torn WAL, as a power cut leaves it. What is kept is a beginning."""
    await while_open(tmp_path / "memory.db", tmp_path / "killed")
    log = (tmp_path / "killed" / "memory.db-wal").read_bytes()
    frame_bytes = PAGE_BYTES + 24
    places = [0, 1, 31, 32, 33, 40, 55, 56, *range(32, len(log), 23 * frame_bytes), *range(77, len(log), 131_071)]
    most = -1
    for place in sorted(set(places)):
        for torn in (log[:place], log[:place] + bytes(len(log) - place), log[:place] + b"\xa5" * 9 + log[place + 9 :]):
            folder = tmp_path / "torn"
            shutil.copytree(tmp_path / "killed", folder)
            (folder / "memory.db-wal").write_bytes(torn)
            kept = await opened(folder / "memory.db")
            assert kept == SAID[: len(kept)], place
            most = max(most, len(kept))
            shutil.rmtree(folder)
    assert most > len(SAID) / 2


async def test_a_spoiled_shared_memory_file_is_made_anew(tmp_path: Path):
    await while_open(tmp_path / "memory.db", tmp_path / "killed")
    (tmp_path / "killed" / "memory.db-shm").write_bytes(b"\xa5" * 32_768)

    assert await opened(tmp_path / "killed" / "memory.db") == SAID


async def test_a_file_that_another_process_locks_is_said_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.01)
    home = await make_home(tmp_path / "home", "one")
    with locked_elsewhere(home.database), pytest.raises(Unavailable, match="another program: close that"):
        async with Database.open(home.database):
            pass

    assert await messages_of(home) == ["one"]


LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA locking_mode = EXCLUSIVE")
connection.execute("BEGIN EXCLUSIVE")
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def locked_elsewhere(path: Path) -> Generator[None]:
    """Another process has the file for itself."""
    command = [sys.executable, "-c", LOCK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        yield
        other.communicate(timeout=5)


KILLED_AT_EACH_BYTE = """
import asyncio, os, resource, signal, sys
from pathlib import Path
from fermix.store import Database
from tests.store.test_database import add, contents

async def write(path, told):
    async with Database.open(path) as database:
        for number in range(1_000):
            await database.run(add(str(number)), durable=number % 3 == 0)
            os.write(told, f"{number}\\n".encode())

def life(path, told, most_bytes):
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    asyncio.run(write(path, told))

async def look(path):
    async with Database.open(path) as database:
        await database.check()
        return [int(content) for content in await contents(database)]

for most_bytes in map(int, sys.argv[2:]):
    path = Path(sys.argv[1]) / f"{most_bytes}.db"
    reading, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        life(path, told, most_bytes)
        os._exit(3)
    os.close(told)
    with os.fdopen(reading) as lines:
        acknowledged = [int(line) for line in lines]
    _, status = os.waitpid(pid, 0)
    kept = asyncio.run(look(path))
    right = kept[: len(acknowledged)] == acknowledged and kept == list(range(len(kept)))
    print(most_bytes, os.waitstatus_to_exitcode(status), len(acknowledged), len(kept), right, flush=True)
"""


@pytest.mark.slow
def test_a_process_that_dies_in_the_middle_of_any_write_keeps_what_it_acknowledged(tmp_path: Path):
    """DB-10, at the level of the disk: the system ends the process at a given byte of the file or its log.

    Whatever was told to be written is there, in its order, and the file passes its check.
    """
    limits = [*range(1, 60_000, 997), *range(100_000, 600_000, 29_989)]
    done = subprocess.run(
        [sys.executable, "-c", KILLED_AT_EACH_BYTE, str(tmp_path), *map(str, limits)],
        cwd=ROOT, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip

    lives = [line.split() for line in done.stdout.splitlines()]
    assert (done.stderr, len(lives)) == ("", len(limits))
    assert [life for life in lives if life[1] != "-25" or life[4] != "True"] == []
    assert max(int(life[2]) for life in lives) > 15


FULL_AT = """
import asyncio, resource, sys
from pathlib import Path
from fermix.errors import NeedsOperator
from fermix.store import Database
from tests.store.test_database import add, contents

def allow(most_bytes):
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))

async def main():
    async with Database.open(Path(sys.argv[1])) as database:
        told = []
        allow(Path(sys.argv[1] + "-wal").stat().st_size + int(sys.argv[2]))
        try:
            for number in range(1_000):
                await database.run(add(str(number)))
                told.append(str(number))
        except NeedsOperator as error:
            print(error)
        allow(resource.RLIM_INFINITY)
        await database.run(add("after"))
        await database.check()
        print(await contents(database) == [*told, "after"], len(told))

asyncio.run(main())
"""


@pytest.mark.parametrize("most_bytes", [60_000, 61_111, 120_000])
def test_a_disk_that_takes_no_more_is_said_and_what_came_before_stays(tmp_path: Path, most_bytes: int):
    """For any user, by a limit of the system instead of a small mount; once there is room, writing goes on."""
    command = [sys.executable, "-c", FULL_AT, str(tmp_path / "memory.db"), str(most_bytes)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)

    assert done.stderr == ""
    said, outcome = done.stdout.splitlines()
    assert "memory.db" in said
    assert "disk" in said
    right, count = outcome.split()
    assert (right, int(count) > 0) == ("True", True)
