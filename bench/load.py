"""Many conversations at once, and what a thousand turns leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figure
from bench.provider import BenchProvider
from bench.turn import ask, connect, write_config
from fermix.protocol.ask import Connection

CONVERSATIONS = 200
DELAY_S = 0.2
TURNS = 1_000
SETTLE_S = 3.0


def figures() -> Iterator[Figure]:
    yield from _memory()
    yield from _many_at_once()


def _memory() -> Iterator[Figure]:
    with (
        tempfile.TemporaryDirectory() as folder,
        BenchProvider() as provider,
        _daemon(folder, provider.base_url) as pid,
    ):
        connection = connect(Path(folder) / "fermix")
        connection.request("events.subscribe", {"sessions": None, "services": False})
        time.sleep(SETTLE_S)
        idle = proportional_bytes(pid)
        for number in range(TURNS):
            ask(connection, f"c{number % 10}", "a question of usual length")
        time.sleep(SETTLE_S)
        after = proportional_bytes(pid)
    yield Figure("daemon.idle_memory", idle / 2**20, "MiB (PSS)", 60.0)
    yield Figure("daemon.growth_1000_turns", (after - idle) / 2**20, "MiB (PSS)", 8.0)


def _many_at_once() -> Iterator[Figure]:
    with (
        tempfile.TemporaryDirectory() as folder,
        BenchProvider(delay_s=DELAY_S) as provider,
        _daemon(folder, provider.base_url),
    ):
        connection = connect(Path(folder) / "fermix")
        connection.request("events.subscribe", {"sessions": None, "services": False})
        ask(connection, "warm", "up")
        began = time.monotonic()
        answered = _ask_all(connection)
        took = time.monotonic() - began
    yield Figure("load.200_conversations", took, "s", 3.0)
    yield Figure("load.lost_or_crossed", CONVERSATIONS - answered, "messages", 0.0)


def _ask_all(connection: Connection) -> int:
    """Send one message in each of 200 sessions; count replies that came once, in their own session."""
    for number in range(CONVERSATIONS):
        wish = {"id": f"m{number}", "session": f"s{number}", "text": f"question {number}"}
        connection.request("message.send", wish)
    replies: dict[str, str] = {}
    settled = 0
    for name, params in connection.events():
        if name == "reply":
            replies[str(params["message_id"])] = str(params["session"])
        settled += name == "turn.ended" and str(params["message_id"]).startswith("m")
        if settled == CONVERSATIONS:
            break
    return sum(1 for message, session in replies.items() if message[1:] == session[1:])


@contextmanager
def _daemon(folder: str, url: str) -> Generator[int]:
    home = Path(folder) / "fermix"
    write_config(home, url)
    environ = {**os.environ, "FERMIX_HOME": str(home)}
    with subprocess.Popen(
        [sys.executable, "-m", "fermix", "--daemon"], env=environ, stderr=subprocess.DEVNULL
    ) as process:
        connect(home).close()
        try:
            yield process.pid
        finally:
            process.terminate()


def proportional_bytes(pid: int) -> int:
    """PSS of one process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no PSS")
