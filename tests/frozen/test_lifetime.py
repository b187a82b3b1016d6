"""A daemon of the frozen program runs for weeks, and a cleaner empties its cache meanwhile (PKG-02)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from fermix.protocol.ask import Connection
from tests.flows.product import Product, compatible, running, scripted
from tests.frozen import probes

pytestmark = [pytest.mark.frozen, pytest.mark.timeout(120)]

CALLS = [
    {"name": "content_search", "arguments": {"pattern": "n.edle", "regex": True}},
    {"name": "shell", "arguments": {"command": "env"}},
]


@pytest.fixture
def product(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Product]:
    """A daemon of the built file with a cache of its own; its model calls two tools, then says so."""
    monkeypatch.setenv("FERMIX_PROGRAM", str(program))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with scripted(tmp_path, [{"calls": CALLS}, {"text": "done"}]) as url, running(tmp_path, compatible(url)) as product:
        yield product


def test_deleted_files_are_put_back(ask_inside: Callable[..., object]) -> None:
    """PKG-02: the service that looks after them, and the launcher that it asks."""
    assert ask_inside(probes.restored_files) == [True, True]


def test_daemon_answers_when_its_cache_is_gone(product: Product, tmp_path: Path) -> None:
    """PKG-02: the whole turn, over a socket that was not opened by a new start of the file. The search starts one."""
    (product.home / "workspace" / "notes.txt").write_text("a needle\n", encoding="utf-8")
    shutil.rmtree(tmp_path / "cache")
    connection = Connection(str(product.home / "daemon.sock"), client="test")
    connection.request("events.subscribe", {"sessions": ["cli"], "services": True})
    connection.request("message.send", {"id": "1", "session": "cli", "text": "search", "attachments": []})
    connection.wait_s(20)
    reply = next(params for name, params in connection.events() if name == "reply")
    entries = connection.request("conversation.history", {"session": "cli", "limit": 50})["entries"]
    connection.close()

    told = json.dumps(entries)
    assert reply["text"] == "done"
    assert "a needle" in told
    assert "PATH=" in told
    assert [name for name in ("FERMIX_EXE", "LD_LIBRARY_PATH", "_PYI", "_MEIPASS") if name in told] == []  # PKG-01
    assert "Traceback" not in product.log()


def test_our_own_programs_share_one_cache(product: Product, tmp_path: Path) -> None:
    """A verb, a tool's search and the daemon unpack once; nothing of it lands in the user's own cache."""
    assert product.run("ask", "search").stdout == "done\n"

    builds = [path for path in (tmp_path / "cache" / "fermix" / "runtime").iterdir() if path.is_dir()]
    assert len(builds) == 1
    assert not (product.user_home / ".cache").exists()
