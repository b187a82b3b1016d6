"""Full and read-only disks, as small mounts: the tests may run as root, whom file modes do not stop."""

from __future__ import annotations

import ast
import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fermix.errors import NeedsOperator
from fermix.store import Connection, Database
from tests.requirements import covers
from tests.store.test_database import ADD, Gate, add, contents

FERMIX = Path(__file__).parents[2] / "fermix"


@contextmanager
def small_disk(where: Path, size_bytes: int) -> Generator[None]:
    where.mkdir()
    mount = shutil.which("mount")
    if mount is None:
        pytest.skip("there is no mount command here")
    made = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={size_bytes},mode=700", "tmpfs", str(where)],
        capture_output=True,
        text=True,
        timeout=5,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(where)], check=True, timeout=5)


def remount_read_only(where: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(where)], check=True, timeout=5)


def add_many(connection: Connection) -> None:
    for _ in range(40):
        connection.execute(ADD, ("x" * 50_000,))


@covers("db.atomic")
async def test_a_full_disk_is_said_and_nothing_is_half_written(folder: Path):
    disk = folder / "disk"
    with small_disk(disk, 1_048_576):
        async with Database.open(disk / "memory.db") as database:
            await database.run(add("before"))
            with pytest.raises(NeedsOperator, match="full") as refused:
                await database.run(add_many)

            assert "free some space" in refused.value.advice
            assert await contents(database) == ["before"]
            assert await database.run(add("after")) == "after"
        async with Database.open(disk / "memory.db") as database:
            await database.check()
            assert await contents(database) == ["before", "after"]


async def test_a_full_disk_is_said_to_each_who_shared_the_commit(folder: Path):
    disk = folder / "disk"
    gate = Gate()
    with small_disk(disk, 1_048_576):
        async with Database.open(disk / "memory.db") as database, asyncio.TaskGroup() as group:
            await gate.hold(database, group)
            fates = [group.create_task(refusal_of(database.run(fn))) for fn in (add("a"), add_many, add("b"))]
            await asyncio.sleep(0)
            gate.release()

    assert [str(fate.result()).startswith("the disk that holds") for fate in fates] == [True, True, True]


async def refusal_of(running: Awaitable[object]) -> NeedsOperator:
    with pytest.raises(NeedsOperator) as refused:
        await running
    return refused.value


async def test_a_disk_that_is_full_from_the_start_is_said(folder: Path):
    disk = folder / "disk"
    with small_disk(disk, 65_536):
        (disk / "other").write_bytes(b"x" * 61_440)
        with pytest.raises(NeedsOperator, match=r"memory\.db"):
            async with Database.open(disk / "memory.db"):
                pass


async def test_a_read_only_disk_is_said_and_the_file_stays_as_it_was(folder: Path):
    disk = folder / "disk"
    with small_disk(disk, 1_048_576):
        async with Database.open(disk / "memory.db") as database:
            await database.run(add("one"))
        before = (disk / "memory.db").read_bytes()
        remount_read_only(disk)

        with pytest.raises(NeedsOperator, match=r"memory\.db.*writable"):
            async with Database.open(disk / "memory.db"):
                pass
        assert (disk / "memory.db").read_bytes() == before


async def test_a_read_only_empty_disk_is_said(folder: Path):
    disk = folder / "disk"
    with small_disk(disk, 65_536):
        remount_read_only(disk)
        with pytest.raises(NeedsOperator, match=r"memory\.db.*writable"):
            async with Database.open(disk / "memory.db"):
                pass


def test_nothing_but_the_store_names_the_file_and_nothing_in_the_store_opens_it():
    """DB-01: closing any descriptor of the file that SQLite did not open drops the locks of this process."""
    opening = {"open", "read_bytes", "read_text", "write_bytes", "write_text", "fdopen"}
    allowed = {
        "schema.py": {"read_text"},  # the migrations
        "archive.py": {"open", "fdopen"},  # a backup file, and copies that no connection has open
        "backup.py": {"open", "fdopen"},  # the backup file while it is made
        "exchange.py": {"read_text"},  # the note of a restore
    }
    for module in (FERMIX / "store").glob("*.py"):
        tree = ast.parse(module.read_text(encoding="utf-8"))
        called = {name_of(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        assert called & opening <= allowed.get(module.name, set()), module.name
    others = [file for file in FERMIX.rglob("*.py") if "memory.db" in file.read_text(encoding="utf-8")]
    assert [file.name for file in others] == ["home.py"]


def name_of(called: ast.expr) -> str:
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else ""
