"""Backups brought back: the whole state or none of it, and what was there before is not lost."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import stat
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from fermix.errors import NeedsOperator
from fermix.home import Home
from fermix.store import exchange, schema
from fermix.store.backup import make_backup
from fermix.store.restore import restore_backup, undo_restore
from tests.store.homes import NOW, OTHERS, make_home, messages_of, others_of, quiet, say, write
from tests.store.test_faults import small_disk

LATER = {
    "config.toml": "[fermix_web]\nport = 1\n",
    "bootstrap/main/IDENTITY.md": "I am somebody else.",
    "memory/main/NEW.md": "new",
}
"""What the home holds when the backup comes back."""


async def saved(tmp_path: Path) -> tuple[Home, Path]:
    """A home that went on after its backup."""
    home = await make_home(tmp_path / "home", "one", "two")
    path = make_backup(home, tmp_path / "out.zip", NOW, quiet).path
    await say(home, "three")
    shutil.rmtree(home.grants)
    shutil.rmtree(home.memory.parent)
    write(home, LATER)
    return home, path


async def state(home: Home) -> tuple[list[str], dict[str, str]]:
    return await messages_of(home), others_of(home)


EARLIER_STATE = (["one", "two"], OTHERS)
LATER_STATE = (["one", "two", "three"], LATER)


async def test_a_restore_brings_the_whole_state_back_and_its_undo_the_other(tmp_path: Path):
    home, path = await saved(tmp_path)
    write(home, {"auth.json": "a key", "workspace/mine": "mine"})

    restored = restore_backup(home, path, NOW, quiet)
    found = await state(home)
    undo_restore(home, NOW)
    undone = await state(home)
    undo_restore(home, NOW)

    assert restored.kept.parent == home.replaced
    assert (found, undone, await state(home)) == (EARLIER_STATE, LATER_STATE, EARLIER_STATE)
    assert (home.root / "auth.json").read_text(encoding="utf-8") == "a key"
    assert [path.name for path in home.root.glob(".restore-*")] == []


async def test_what_comes_back_is_private(tmp_path: Path):
    home, path = await saved(tmp_path)
    path.chmod(0o644)

    restore_backup(home, path, NOW, quiet)

    for name in ("memory.db", "config.toml", "bootstrap", "bootstrap/main", "bootstrap/main/IDENTITY.md", "grants"):
        assert stat.S_IMODE((home.root / name).stat().st_mode) & 0o077 == 0, name


async def test_a_backup_fills_an_empty_home(tmp_path: Path):
    _, path = await saved(tmp_path)
    other = Home(tmp_path / "other")
    other.prepare()

    restore_backup(other, path, NOW, quiet)

    assert await state(other) == EARLIER_STATE


async def test_a_damaged_database_is_kept_as_it_is_and_replaced(tmp_path: Path):
    home, path = await saved(tmp_path)
    home.database.write_bytes(b"no database any more" * 300)
    home.database.with_name("memory.db-wal").write_bytes(b"nor this a log")

    restored = restore_backup(home, path, NOW, quiet)

    assert await state(home) == EARLIER_STATE
    assert (restored.kept / "memory.db").read_bytes() == b"no database any more" * 300
    assert (restored.kept / "memory.db-wal").read_bytes() == b"nor this a log"


async def test_a_backup_of_an_older_fermix_is_brought_up_to_date_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(schema, "LATEST", 1)
    monkeypatch.setattr(schema._migrate, "__defaults__", (1,))
    home = await make_home(tmp_path / "home", "one")
    path = make_backup(home, tmp_path / "out.zip", NOW, quiet).path
    monkeypatch.undo()

    restored = restore_backup(home, path, NOW, quiet)

    assert restored.manifest.schema_version == 1
    assert await messages_of(home) == ["one"]
    with closing(sqlite3.connect(home.database)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.LATEST,)


def repack(path: Path, **changes: bytes | None) -> Path:
    """Write a backup anew with some of its files changed, None for left out."""
    changed = path.with_name("changed.zip")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        files = {name: old.read(name) for name in old.namelist()} | {
            name.replace("__", "."): data for name, data in changes.items()
        }
        for name, data in files.items():
            if data is not None:
                new.writestr(name, data)
    return changed


def told(path: Path, **changes: object) -> bytes:
    with zipfile.ZipFile(path) as opened:
        return json.dumps({**json.loads(opened.read("manifest.json")), **changes}).encode()


async def refused(home: Home, path: Path) -> str:
    """Return why a file is refused; nothing of the home may have changed."""
    before = await state(home)
    with pytest.raises(NeedsOperator, match="nothing was changed") as raised:
        restore_backup(home, path, NOW, quiet)
    assert await state(home) == before
    assert not home.replaced.exists() or not any(home.replaced.iterdir())
    return str(raised.value)


async def test_what_is_no_backup_is_refused_by_what_it_is(tmp_path: Path):
    home, path = await saved(tmp_path)
    letter, bare, other = tmp_path / "letter", tmp_path / "bare.db", tmp_path / "other.zip"
    letter.write_text("dear Jo", encoding="utf-8")
    with closing(sqlite3.connect(bare)) as connection:
        connection.execute("CREATE TABLE a (b)")
    with zipfile.ZipFile(other, "w") as opened:
        opened.writestr("holiday.txt", "sun")

    assert "is no backup of Fermix" in await refused(home, letter)
    assert "is a bare database" in await refused(home, bare)
    assert "is no backup of Fermix" in await refused(home, other)
    with pytest.raises(NeedsOperator, match=r"cannot read .*absent"):
        restore_backup(home, tmp_path / "absent", NOW, quiet)
    with pytest.raises(NeedsOperator, match="cannot read"):
        restore_backup(home, tmp_path, NOW, quiet)
    assert path.exists()


@pytest.mark.timeout(20)
async def test_a_pipe_is_no_backup_and_nobody_waits_at_it(tmp_path: Path):
    """`fermix restore <(…)`, and a name with --force: both held the terminal, and the first the home too."""
    home, _ = await saved(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert "is no backup of Fermix" in await refused(home, pipe)
    with pytest.raises(NeedsOperator, match="is no backup of Fermix"):
        make_backup(home, pipe, NOW, quiet, replace=True)
    assert pipe.is_fifo()


async def test_a_newer_backup_is_refused(tmp_path: Path):
    home, path = await saved(tmp_path)

    for change in ({"schema_version": schema.LATEST + 1}, {"format_version": 2}):
        changed = repack(path, manifest__json=told(path, **change, fermix="9.9"))
        assert "newer Fermix (9.9)" in await refused(home, changed)


async def test_a_backup_that_was_changed_is_refused(tmp_path: Path):
    home, path = await saved(tmp_path)
    manifest = json.loads(told(path))
    changes: list[dict[str, bytes | None]] = [
        {"config__toml": b"[fermix_web]\nport = 7\n"},
        {"config__toml": None},
        {"memory__db": None},
        {"memory__db": b"SQLite format 3\0 and more"},
        {"manifest__json": b"{"},
        {"manifest__json": told(path, files={"config.toml": manifest["files"]["config.toml"]})},
        {"manifest__json": told(path, rows={**manifest["rows"], "messages": 1})},
    ]
    for change in changes:
        assert "is damaged" in await refused(home, repack(path, **change))


@pytest.mark.parametrize("name", ["../out", "/etc/x", "bootstrap/../../x", "bootstrap//x", "auth.json", "daemon.sock"])
async def test_no_name_in_a_backup_leads_elsewhere(tmp_path: Path, name: str):
    home, path = await saved(tmp_path)
    member = json.loads(told(path))["files"]["config.toml"]
    files = {**json.loads(told(path))["files"], name: member}

    assert "is damaged" in await refused(home, repack(path, manifest__json=told(path, files=files)))


async def test_a_backup_whose_database_is_another_programs_is_refused(tmp_path: Path):
    home, path = await saved(tmp_path)
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    data = (tmp_path / "other.db").read_bytes()
    files = json.loads(told(path))["files"]
    digest = hashlib.sha256(data).hexdigest()
    files["memory.db"] = {"size_bytes": len(data), "sha256": digest}

    changed = repack(path, memory__db=data, manifest__json=told(path, files=files, schema_version=0))

    assert "not as Fermix makes it" in await refused(home, changed)


@pytest.mark.slow
async def test_a_backup_cut_off_or_garbled_anywhere_is_refused_or_whole(tmp_path: Path):
    """Every byte that matters is under a checksum; one that does not matter may change."""
    home, path = await saved(tmp_path)
    whole = path.read_bytes()
    bad = tmp_path / "bad.zip"
    for cut in range(0, len(whole), len(whole) // 25):
        bad.write_bytes(whole[:cut])
        await refused(home, bad)
    for offset in [*range(0, len(whole), len(whole) // 40), *range(len(whole) - 400, len(whole), 9)]:
        bad.write_bytes(
            whole[:offset] + bytes(byte ^ 0x55 for byte in whole[offset : offset + 8]) + whole[offset + 8 :]
        )
        try:
            restore_backup(home, bad, NOW, quiet)
        except NeedsOperator as error:
            assert "nothing was changed" in str(error)  # noqa: PT017 - either is right
            assert await messages_of(home) == LATER_STATE[0]
        else:
            assert await state(home) == EARLIER_STATE
            undo_restore(home, NOW)


async def test_a_disk_without_room_is_said_before_anything_moves(tmp_path: Path):
    disk = tmp_path / "disk"
    source = await make_home(tmp_path / "source", *("x" * 100_000 for _ in range(20)))
    path = make_backup(source, tmp_path / "out.zip", NOW, quiet).path
    with small_disk(disk, 1_048_576):
        home = await make_home(disk / "home", "one")
        assert "MB are missing" in await refused(home, path)


def test_there_is_nothing_to_undo_at_first(tmp_path: Path):
    home = Home(tmp_path / "home")
    home.prepare()

    with pytest.raises(NeedsOperator, match="no restore is there to undo"):
        undo_restore(home, NOW)


class Cut(BaseException):
    """The power goes."""


class Power:
    """Lets so many steps happen, then goes."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def counting(self, real):
        def step(*args, **options):
            if self.left == 0:
                raise Cut
            self.left -= 1
            return real(*args, **options)

        return step


STEPS = ((Path, "rename"), (Path, "unlink"), (Path, "rmdir"), (exchange, "write_atomic"))


def restored_until(power: Power, home: Home, path: Path) -> bool:
    """Restore while the power lasts, and tell whether it lasted."""
    with pytest.MonkeyPatch.context() as patched:
        for owner, name in STEPS:
            patched.setattr(owner, name, power.counting(getattr(owner, name)))
        try:
            restore_backup(home, path, NOW, quiet)
        except Cut:
            return False
    return True


async def test_an_exchange_cut_off_at_any_step_is_finished_by_the_next_start(tmp_path: Path):
    """After each rename, each note and each removal: the next start finds one whole state, and the other is kept."""
    for steps in range(100):
        (tmp_path / str(steps)).mkdir()
        home, path = await saved(tmp_path / str(steps))
        ended = restored_until(Power(steps), home, path)
        begun = home.restoring.exists()
        home.prepare()  # as every start does first
        exchange.finish(home)
        found = await state(home)
        assert found == EARLIER_STATE if begun or ended else found in (EARLIER_STATE, LATER_STATE)
        if found == EARLIER_STATE:
            undo_restore(home, NOW)
        assert await state(home) == LATER_STATE
        if ended:
            break
    assert 10 < steps < 99


async def test_a_restore_first_finishes_one_that_was_cut_off(tmp_path: Path):
    home, path = await saved(tmp_path)
    assert not restored_until(Power(4), home, path)
    assert not home.database.exists()

    undo_restore(home, NOW)

    assert await state(home) == LATER_STATE


def test_a_note_that_cannot_be_read_stops_the_start_and_says_what_to_look_at(tmp_path: Path):
    home = Home(tmp_path / "home")
    home.prepare()
    for text in ("{", "[]", '{"other": 1}'):
        home.restoring.write_text(text, encoding="utf-8")
        with pytest.raises(NeedsOperator, match=r"restoring\.json cannot be read"):
            exchange.finish(home)


async def test_a_home_that_cannot_be_written_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    home, path = await saved(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(exchange, "write_atomic", refuse)
        with pytest.raises(NeedsOperator, match=r"cannot exchange the files of .*Permission denied"):
            restore_backup(home, path, NOW, quiet)

    assert await state(home) == LATER_STATE
