"""Backups of real files: beside a writer, whole or not at all, never over what is there."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import threading
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fermix.errors import NeedsOperator, Unavailable
from fermix.home import Home
from fermix.store import Database, archive, backup, schema
from fermix.store.backup import make_backup
from fermix.store.snapshot import Contents, copy_database
from tests.store.homes import NOW, OTHERS, make_home, messages_of, quiet, say, write
from tests.store.test_database import add
from tests.store.test_faults import remount_read_only, small_disk


def stored_messages(backup: Path, folder: Path) -> list[str]:
    """Look into a backup with nothing but Python's own libraries, as its owner could."""
    with zipfile.ZipFile(backup) as opened:
        database = folder / "looked-at.db"
        database.write_bytes(opened.read("memory.db"))
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [content for (content,) in connection.execute("SELECT content FROM messages ORDER BY id")]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_a_backup_holds_what_makes_an_install_and_no_kept_keys(tmp_path: Path):
    home = await make_home(tmp_path / "home", "one", "two")
    write(home, {"auth.json": "a key", "workspace/mine": "x", "logs/fermix.log": "x", "models/weights": "x"})

    made = make_backup(home, tmp_path / "out.zip", NOW, quiet)

    with zipfile.ZipFile(made.path) as opened:
        assert set(opened.namelist()) == {"memory.db", "manifest.json", *OTHERS}
        assert {name: opened.read(name).decode() for name in OTHERS} == OTHERS
        told = json.loads(opened.read("manifest.json"))
    assert stored_messages(made.path, tmp_path) == ["one", "two"]
    assert (told["format"], told["schema_version"], told["rows"]["messages"]) == ("fermix-backup", schema.LATEST, 2)
    assert told["created_at"] == "2026-12-01T03:45:12+00:00"


@pytest.mark.parametrize("mask", [0o000, 0o022])
async def test_a_backup_is_private_and_nothing_else_is_left(tmp_path: Path, mask: int):
    home = await make_home(tmp_path / "home", "one")
    out = tmp_path / "out"
    out.mkdir()
    before = os.umask(mask)
    try:
        made = make_backup(home, out, NOW, quiet)
    finally:
        os.umask(before)

    assert names(out) == {"fermix-20261201-034512.backup.zip"}
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    assert {"memory.db-wal", "memory.db-shm"} & names(home.root) == set()


async def test_a_backup_beside_a_busy_writer_is_one_moment_and_holds_nobody_up(tmp_path: Path):
    """SQLite's backup call over a snapshot: what was committed before is in it, what came later is not, no gap."""
    home = await make_home(tmp_path / "home", *("x" * 2_000 for _ in range(200)))
    began, written = threading.Event(), 0
    done = threading.Event()

    def back_up() -> None:
        make_backup(home, tmp_path / "out.zip", NOW, lambda *_: began.set())
        done.set()

    async with asyncio.timeout(30), Database.open(home.database) as database:
        thread = threading.Thread(target=back_up)
        thread.start()
        while not done.is_set():
            await database.run(add(str(written)), durable=written % 2 == 0)
            written += 1
        thread.join()
    kept = stored_messages(tmp_path / "out.zip", tmp_path)

    assert began.is_set()
    assert kept[200:] == [str(number) for number in range(len(kept) - 200)]
    assert len(kept) - 200 <= written
    assert len(await messages_of(home)) == 200 + written


async def test_no_file_beside_the_database_is_newer_than_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A USER.md of facts that the copy does not hold would come back as the owner's own text."""
    home = await make_home(tmp_path / "home", "one")

    def copy_slowly(*arguments: Any) -> Contents:
        write(home, {"memory/main/USER.md": "made from a fact that was stored meanwhile"})
        return copy_database(*arguments)

    monkeypatch.setattr(backup, "copy_database", copy_slowly)
    made = make_backup(home, tmp_path / "out.zip", NOW, quiet)

    with zipfile.ZipFile(made.path) as opened:
        assert opened.read("memory/main/USER.md").decode() == OTHERS["memory/main/USER.md"]


async def test_what_only_the_wal_holds_is_in_the_backup(tmp_path: Path):
    home = await make_home(tmp_path / "home", "one")
    async with Database.open(home.database) as database:
        await database.run(add("in the wal"))
        made = make_backup(home, tmp_path / "out.zip", NOW, quiet)

    assert stored_messages(made.path, tmp_path) == ["one", "in the wal"]


async def test_an_existing_file_is_replaced_only_by_wish_and_only_by_its_kind(tmp_path: Path):
    home = await make_home(tmp_path / "home", "one")
    out, letter = tmp_path / "out.zip", tmp_path / "letter.txt"
    letter.write_text("dear Jo", encoding="utf-8")
    make_backup(home, out, NOW, quiet)
    first = out.read_bytes()
    await say(home, "two")

    with pytest.raises(NeedsOperator, match=r"exists.*--force"):
        make_backup(home, out, NOW, quiet)
    with pytest.raises(NeedsOperator, match="no backup of Fermix"):
        make_backup(home, letter, NOW, quiet, replace=True)
    assert (out.read_bytes(), letter.read_text(encoding="utf-8")) == (first, "dear Jo")
    make_backup(home, out, NOW, quiet, replace=True)
    assert stored_messages(out, tmp_path) == ["one", "two"]


async def test_a_file_that_comes_into_being_meanwhile_is_not_replaced(tmp_path: Path):
    home = await make_home(tmp_path / "home", "one")
    out = tmp_path / "out.zip"

    with pytest.raises(NeedsOperator, match="exists"):
        make_backup(home, out, NOW, lambda phase, _: out.write_bytes(b"mine") if phase == "reading back" else None)

    assert out.read_bytes() == b"mine"
    assert names(tmp_path) == {"home", "out.zip", "user"}


async def test_a_file_system_without_links_takes_a_backup_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    home = await make_home(tmp_path / "home", "one")

    made = make_backup(home, tmp_path / "out.zip", NOW, quiet)

    assert stored_messages(made.path, tmp_path) == ["one"]


async def test_a_full_disk_leaves_no_half_backup(tmp_path: Path):
    home = await make_home(tmp_path / "home", *(os.urandom(20_000).hex() for _ in range(20)))
    disk = tmp_path / "disk"
    for size_bytes in (262_144, 1_048_576):  # too small for the copy; too small for the packed file beside it
        with small_disk(disk, size_bytes):
            with pytest.raises(NeedsOperator, match=r"full|No space"):
                make_backup(home, disk / "out.zip", NOW, quiet)
            assert names(disk) == set()
        disk.rmdir()


async def test_a_home_on_a_disk_that_has_become_read_only_can_be_saved(tmp_path: Path):
    disk = tmp_path / "disk"
    with small_disk(disk, 4_194_304):
        home = await make_home(disk / "home", "one")
        remount_read_only(disk)
        made = make_backup(home, tmp_path / "out.zip", NOW, quiet)

    assert stored_messages(made.path, tmp_path) == ["one"]


async def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path):
    home = await make_home(tmp_path / "home", "one")

    with pytest.raises(NeedsOperator, match=r"cannot write .*nowhere"):
        make_backup(home, tmp_path / "nowhere" / "out.zip", NOW, quiet)


def test_a_home_without_a_database_has_nothing_to_back_up(tmp_path: Path):
    with pytest.raises(NeedsOperator, match=r"there is no .*yet"):
        make_backup(Home(tmp_path / "home"), tmp_path / "out.zip", NOW, quiet)

    assert names(tmp_path) == {"user"}


async def test_a_damaged_database_gives_no_backup(tmp_path: Path):
    """Damage that only the whole check sees: an index that lacks a row."""
    home = await make_home(tmp_path / "home", "one", "two")
    with closing(sqlite3.connect(home.database)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_schema SET sql = sql || ' WHERE id > 1' WHERE name = 'inbox_by_age'")
        connection.commit()

    with pytest.raises(NeedsOperator, match=r"memory\.db.*inbox_by_age"):
        make_backup(home, tmp_path / "out.zip", NOW, quiet)

    assert names(tmp_path) == {"home", "user"}


async def test_a_locked_database_is_said_to_be_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schema, "BUSY_TIMEOUT_S", 0.01)
    home = await make_home(tmp_path / "home", "one")
    with closing(sqlite3.connect(home.database, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match="in use by another program"):
            make_backup(home, tmp_path / "out.zip", NOW, quiet)


async def test_links_and_half_written_files_are_left_out(tmp_path: Path):
    home = await make_home(tmp_path / "home", "one", others={})
    write(home, {"bootstrap/main/.USER.md.0123": "half", "bootstrap/main/USER.md": "whole"})
    (home.bootstrap / "LINK.md").symlink_to("/etc/hostname")

    made = make_backup(home, tmp_path / "out.zip", NOW, quiet)

    assert set(made.manifest.files) == {"memory.db", "bootstrap/main/USER.md"}


async def test_what_reads_back_wrong_is_no_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A disk that does not keep what is written shows itself before the file has its name."""
    home = await make_home(tmp_path / "home", "one")
    packed = archive.pack

    def pack_badly(target, *rest):
        manifest = packed(target, *rest)
        target.seek(100)
        target.write(b"\xa5" * 50)
        return manifest

    monkeypatch.setattr(archive, "pack", pack_badly)

    with pytest.raises(NeedsOperator, match="reads back as something else"):
        make_backup(home, tmp_path / "out.zip", NOW, quiet)
    assert names(tmp_path) == {"home", "user"}
