"""Backups and damage with a real daemon: made while messages flow, brought back, and what a user reads meanwhile."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from fermix.protocol.ask import Connection
from tests.flows.product import Product, compatible, running, scripted
from tests.store.test_damage import locked_elsewhere
from tests.store.test_faults import remount_read_only, small_disk

pytestmark = pytest.mark.slow

PAGE_BYTES = 4_096


@pytest.fixture
def product(tmp_path: Path) -> Generator[Product]:
    with scripted(tmp_path, [{"echo": True}]) as url, running(tmp_path, compatible(url)) as product:
        yield product


def history(product: Product, session: str = "cli") -> list[str]:
    connection = Connection(str(product.home / "daemon.sock"), client="test")
    entries = connection.request("conversation.history", {"session": session, "limit": 500})["entries"]
    connection.close()
    assert isinstance(entries, list)
    return [entry["text"] for entry in entries if entry["role"] == "user"]


def send(product: Product, *texts: str) -> None:
    """Hand messages over and wait only until each is acknowledged."""
    connection = Connection(str(product.home / "daemon.sock"), client="test")
    for text in texts:
        connection.request("message.send", {"id": text, "session": "cli", "text": text})
    connection.close()


def test_a_backup_made_while_messages_flow_comes_back_and_goes_again(product: Product, tmp_path: Path) -> None:
    """Issue "Memory that lasts": live-safe through SQLite's backup call, verified, and the restore can be undone."""
    send(product, *(f"first {number}" for number in range(10)))
    out = str(tmp_path / "out.zip")
    saving = product.spawn("backup", out, "--json")
    send(product, *(f"second {number}" for number in range(10)))
    told, errors = saving.communicate(timeout=20)
    made = json.loads(told)
    refused = product.run("restore", out)
    product.run("ask", "after the backup")
    assert product.stop() == 0
    restored = product.run("restore", out)
    product.start()
    earlier = history(product)
    product.stop()
    undone = product.run("restore", "--undo")
    product.start()
    later = history(product)

    assert (errors, made["status"]) == ("", "ok")
    assert {"memory.db", "config.toml", "bootstrap/main/IDENTITY.md"} <= set(made["files"])
    assert refused.returncode == 1
    assert "stop it with `fermix stop`" in refused.stderr
    assert (restored.returncode, undone.returncode) == (0, 0)
    assert earlier[:10] == [f"first {number}" for number in range(10)]
    assert "after the backup" not in earlier
    assert later == [*(f"{half} {n}" for half in ("first", "second") for n in range(10)), "after the backup"]


def spoil(product: Product, table: str) -> None:
    """Spoil the pages of a table as a failing disk does, from outside."""
    database = product.home / "memory.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("UPDATE inbox SET begun = begun")  # from here on nobody trusts the pages that he holds
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    file = os.open(database, os.O_WRONLY)
    os.pwrite(file, b"\xa5" * PAGE_BYTES, (page - 1) * PAGE_BYTES)
    os.close(file)


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_a_start_on_a_damaged_database_says_what_to_do_and_that_helps(product: Product, tmp_path: Path) -> None:
    product.run("ask", "remember me")
    product.run("backup", str(tmp_path / "out.zip"))
    product.stop()
    (product.home / "memory.db").write_bytes(b"\xa5" * 50_000)

    said = [one_sentence(product.run(*argv)) for argv in (("--daemon",), ("start",))]
    product.run("restore", str(tmp_path / "out.zip"))
    product.start()

    assert ["`fermix restore FILE`" in sentence for sentence in said] == [True, True]
    assert history(product) == ["remember me"]


@pytest.mark.parametrize("table", ["inbox", "messages"])
def test_damage_found_while_running_is_said_where_a_user_looks(product: Product, tmp_path: Path, table: str) -> None:
    product.run("ask", "remember me")
    out = str(tmp_path / "out.zip")
    product.run("backup", out)
    spoil(product, table)
    asked = product.run("ask", "--session", "new", "and now?")
    saved = product.run("backup", str(tmp_path / "other.zip"))
    failures = str(product.status()["failures"])

    assert "Traceback" not in asked.stdout + asked.stderr
    assert "is damaged" in one_sentence(saved)
    assert "is damaged" in failures
    assert "`fermix restore FILE`" in failures
    product.stop()
    assert product.run("restore", out).returncode == 0
    product.start()
    assert history(product) == ["remember me"]


def test_a_start_on_a_database_that_another_program_locks_says_so(product: Product) -> None:
    product.run("ask", "remember me")
    product.stop()
    with locked_elsewhere(product.home / "memory.db"):
        said = one_sentence(product.run("--daemon"))
    product.start()

    assert "memory.db is in use by another program: close that" in said
    assert history(product) == ["remember me"]


def test_a_start_in_a_home_that_is_read_only_or_full_says_so(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, 1_048_576):
        product = Product(disk, "[fermix_web]\nport = 0\n")
        product.prepare()
        (disk / "other").write_bytes(b"x" * 1_000_000)
        full = one_sentence(product.run("--daemon"))
        (disk / "other").unlink()
        remount_read_only(disk)
        read_only = one_sentence(product.run("--daemon"))

    assert "free some space" in full or "its disk is not full" in full
    assert "you can write" in read_only
