"""One walk over the home after a day's work: every artifact at its path with its mode, and nothing else."""

from __future__ import annotations

import re
import sqlite3
import stat
import time
from pathlib import Path

import pytest

from tests.fakes.provider import Answer, Call
from tests.fakes.stage import staged
from tests.flows.product import Product, running
from tests.requirements import covers

pytestmark = pytest.mark.slow

DAY = r"\d{4}-\d\d-\d\d"
TABLE = {
    r"config\.toml(\.previous)?": 0o600,
    r"auth\.json(\.previous)?": 0o600,
    r"memory\.db(-wal|-shm)?": 0o600,
    r"(memory|bootstrap)(/main)?": 0o700,
    r"bootstrap/main/(IDENTITY|FERMIX)\.md": 0o600,
    r"memory/main/(USER|MEMORY)\.md": 0o600,
    r"workspace|skills|plugins|grants|logs|traces|job_runs|models|run(/commands)?": 0o700,
    r"logs/fermix\.log": 0o600,
    rf"traces/{DAY}": 0o700,
    rf"traces/{DAY}/(llm_call|tool_exec|agent_event|channel_msg|error)\.jsonl": 0o600,
    r"daemon\.sock": 0o600,
    r"daemon\.lock": 0o600,
}
MUST = (
    "config.toml",
    "auth.json",
    "memory.db",
    "memory/main",
    "memory/main/USER.md",
    "bootstrap/main/IDENTITY.md",
    "workspace",
    "skills",
    "plugins",
    "grants",
    "logs/fermix.log",
    "job_runs",
    "daemon.sock",
)


KEEP = Call("memory_store", {"category": "goal", "key": "run", "value": "a marathon"})


def row_of(path: str) -> int | None:
    """The mode that the table gives this path; None when it is in no row."""
    return next((mode for pattern, mode in TABLE.items() if re.fullmatch(pattern, path)), None)


def wait_until_settled(home: Path) -> None:
    """Behind the answer what a command has left is removed, and the traces are written."""
    deadline = time.monotonic() + 10
    while any((home / "run/commands").iterdir()) or not any((home / "traces").glob("*/llm_call.jsonl")):
        assert time.monotonic() < deadline, "it did not settle in time"


def walk(home: Path) -> dict[str, int]:
    return {
        path.relative_to(home).as_posix(): stat.S_IMODE(path.lstat().st_mode)
        for path in home.rglob("*")
        if not path.is_relative_to(home / "workspace") or path == home / "workspace"
    }


@covers("home.table", "home.config", "home.auth", "home.db", "home.bootstrap", "home.logs", "home.traces")
def test_every_artifact_stands_at_its_path_with_its_mode_and_nothing_else_is_there(tmp_path: Path) -> None:
    """A persistence 128-142, as far as the systems exist; a wide umask changes nothing."""
    product = Product(tmp_path, "")
    product.user_home.mkdir(exist_ok=True)
    with staged() as stage:
        stage.play(Answer(calls=(Call("shell", {"command": "echo hi > made.txt"}), KEEP)), Answer(text="done"))
        argv = ("--provider", "mistral", "--base-url", stage.base_url, "--model", "scripted", "--skip-probe")
        done = product.run("setup", *argv, "--api-key-stdin", stdin=b"a-key-0123456789")
        assert done.returncode == 0, done.stderr
        config = product.home / "config.toml"
        config.write_text(config.read_text(encoding="utf-8") + "\n[fermix_web]\nport = 0\n", encoding="utf-8")
        with running(tmp_path, "") as product:
            assert product.run("ask", "make a file").returncode == 0
            wait_until_settled(product.home)
            found = walk(product.home)
            with sqlite3.connect(f"file:{product.home}/memory.db?mode=ro", uri=True) as database:
                assert database.execute("SELECT count(*) FROM messages").fetchone()[0] >= 2
            database.close()
            assert product.stop() == 0

    assert {path: row_of(path) for path in found} == found
    assert [path for path in MUST if path not in found] == []
    assert any(re.fullmatch(rf"traces/{DAY}/llm_call\.jsonl", path) for path in found)
    assert stat.S_IMODE(product.home.stat().st_mode) == 0o700
