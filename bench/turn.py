"""Turn overhead: message in to request out, plus the last byte to reply out; against the minimal turn."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import Figure, p50
from bench.provider import BenchProvider
from fermix.protocol.ask import Connection, DaemonNotRunning

TURNS = 60
WARM_UP = 20  # also fills the history to twenty messages
HISTORY = 20
WAIT_S = 20.0


def figures() -> Iterator[Figure]:
    """Both daemons answer in turn, so that the machine's mood meets both alike."""
    with tempfile.TemporaryDirectory() as folder, BenchProvider() as provider:
        home = Path(folder)
        with _minimal(home, provider.base_url) as least, real_daemon(home / "fermix", provider.base_url) as real:
            for _ in range(WARM_UP):
                least(), real()
            provider.sizes.clear()
            pairs = [(_overhead(provider, least), _overhead(provider, real)) for _ in range(TURNS)]
            size = p50(provider.sizes[1::2])
    base, own = p50([pair[0] for pair in pairs]), p50([pair[1] for pair in pairs])
    yield Figure("turn.minimal", base * 1000, "ms")
    yield Figure("turn.overhead", own * 1000, "ms")
    yield Figure("turn.request_size", size / 1000, "kB")
    yield Figure("turn.overhead_ratio", own / base, "times the minimal turn", 5.0)


def _overhead(provider: BenchProvider, ask: Callable[[], None]) -> float:
    began = time.monotonic()
    ask()
    ended = time.monotonic()
    return (provider.arrived[-1] - began) + max(ended - provider.left[-1], 0.0)


@contextmanager
def _minimal(home: Path, url: str) -> Generator[Callable[[], None]]:
    path = home / "minimal.sock"
    command = [sys.executable, "-m", "bench.minimal", str(path), str(home / "minimal.db"), url]
    with subprocess.Popen(command) as process, socket.socket(socket.AF_UNIX) as client:
        _retry(lambda: client.connect(str(path)))
        reader = client.makefile("rb")

        def ask() -> None:
            client.sendall(json.dumps({"text": "a question of usual length"}).encode() + b"\n")
            reader.readline()

        try:
            yield ask
        finally:
            process.kill()


@contextmanager
def real_daemon(home: Path, url: str, *, tools: int = 25) -> Generator[Callable[[], None]]:
    """The real daemon with as many tools as the yardstick has, and one client that asks in one session."""
    write_config(home, url)
    environ = {**os.environ, "FERMIX_HOME": str(home), "FERMIX_BENCH_TOOLS": str(tools)}
    with subprocess.Popen([sys.executable, "-m", "bench.daemon"], env=environ, stderr=subprocess.DEVNULL) as process:
        connection = connect(home)
        connection.request("events.subscribe", {"sessions": None, "services": False})
        try:
            yield lambda: ask(connection, "bench", "a question of usual length")
        finally:
            connection.close()
            process.terminate()


def write_config(home: Path, url: str, *, port: int = 0) -> None:
    """Make a home whose one provider is at this address."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        f"[fermix_web]\nport = {port}\n"
        f'[fermix_core.providers.openai_compatible]\nbase_url = "{url}"\ndefault_model = "bench"\nprimary = true\n',
        encoding="utf-8",
    )


def connect(home: Path) -> Connection:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return Connection(str(home / "daemon.sock"), client="bench")
        except DaemonNotRunning:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def ask(connection: Connection, session: str, text: str) -> None:
    """One question; returns when its reply is here. The rest of the turn's events are read with the next one."""
    message_id = uuid.uuid4().hex
    connection.request("message.send", {"id": message_id, "session": session, "text": text})
    for name, params in connection.events():
        if name == "reply" and params["message_id"] == message_id:
            return


def _retry(attempt: Callable[[], None]) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return attempt()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
