"""How long things take to be there: quick verbs, the daemon, the terminal UI, each against a bare interpreter."""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench.figures import Figure, p50
from bench.provider import BenchProvider
from bench.turn import connect, write_config

RUNS = 15
BUILT = Path(__file__).parent.parent / "dist" / "fermix"
BARE = [sys.executable, "-c", "pass"]
# What the daemon cannot do without: the event loop, its HTTP server and client, SQLite, typed config.
DAEMON_SET = "import asyncio, json, sqlite3, aiohttp, aiohttp.web, aiosqlite, pydantic"
SCREEN_SET = "import textual.app; from textual.widgets import Static, TextArea"
FIRST_FRAME = "anything, or type"  # part of the placeholder; the cursor stands on its first letter
WAIT_S = 20.0
PORT = 14_030


def figures() -> Iterator[Figure]:
    program = [str(BUILT)] if BUILT.exists() else [sys.executable, "-m", "fermix"]
    kind = "built" if BUILT.exists() else "source"
    with tempfile.TemporaryDirectory() as folder, BenchProvider() as provider:
        home = Path(folder) / "fermix"
        write_config(home, provider.base_url, port=PORT)
        compiled = {"PYTHONDONTWRITEBYTECODE": ""}  # as installed; the round that is not counted writes it
        environ = {**os.environ, **compiled, "FERMIX_HOME": str(home)}
        yield from _quick_verbs(program, kind, environ, provider)
        yield from _daemon(program, kind, environ)
        yield from _screen(program, kind, environ)


def _quick_verbs(
    program: list[str], kind: str, environ: Mapping[str, str], provider: BenchProvider
) -> Iterator[Figure]:
    with _started(program, environ):
        bare, version, ask = _in_turn(
            lambda: _wall(BARE, environ),
            lambda: _wall([*program, "--version"], environ),
            lambda: _ask(program, environ, provider),
        )
    yield Figure("python.pass", bare * 1000, "ms")
    yield Figure(f"{kind}.version", version * 1000, "ms")
    yield Figure(f"{kind}.version_ratio", version / bare, "times `python3 -c pass`", 2.5)
    yield Figure(f"{kind}.ask", ask * 1000, "ms")
    yield Figure(f"{kind}.ask_ratio", ask / bare, "times `python3 -c pass`", 4.0)


def _daemon(program: list[str], kind: str, environ: Mapping[str, str]) -> Iterator[Figure]:
    bare, ready = _in_turn(lambda: _wall([sys.executable, "-c", DAEMON_SET], environ), lambda: _ready(program, environ))
    yield Figure("daemon.bare_imports", bare * 1000, "ms")
    yield Figure(f"{kind}.daemon_ready", ready * 1000, "ms")
    yield Figure(f"{kind}.daemon_ready_ratio", ready / bare, "times its bare imports", 1.8)


def _screen(program: list[str], kind: str, environ: Mapping[str, str]) -> Iterator[Figure]:
    with _started(program, environ):
        bare, frame = _in_turn(
            lambda: _wall([sys.executable, "-c", SCREEN_SET], environ), lambda: _first_frame(program, environ)
        )
    yield Figure("screen.bare_imports", bare * 1000, "ms")
    yield Figure(f"{kind}.first_frame", frame * 1000, "ms")
    yield Figure(f"{kind}.first_frame_ratio", frame / bare, "times the bare import of textual", 1.6)


def _in_turn(*measures: Callable[[], float]) -> list[float]:
    """Medians; the measures alternate, so that a busy minute meets all of them. The first round is not counted."""
    rounds = [[measure() for measure in measures] for _ in range(RUNS + 1)][1:]
    return [p50(values) for values in zip(*rounds, strict=True)]


def _wall(command: list[str], environ: Mapping[str, str]) -> float:
    began = time.monotonic()
    subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def _ask(program: list[str], environ: Mapping[str, str], provider: BenchProvider) -> float:
    """Wall time of a one-shot without what the provider took."""
    took = _wall([*program, "ask", "a question"], environ)
    return took - (provider.left[-1] - provider.arrived[-1])


class _started:  # noqa: N801 - reads as a verb
    """A daemon for as long as the block runs."""

    def __init__(self, program: list[str], environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen([*program, "--daemon"], env=environ, stderr=subprocess.DEVNULL)
        self._home = Path(environ["FERMIX_HOME"])

    def __enter__(self) -> None:
        connect(self._home).close()

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(WAIT_S)


def _ready(program: list[str], environ: Mapping[str, str]) -> float:
    """From exec to the first 200 of /health/ready."""
    began = time.monotonic()
    with subprocess.Popen([*program, "--daemon"], env=environ, stderr=subprocess.DEVNULL) as process:
        while not _is_ready():
            assert time.monotonic() - began < WAIT_S
            time.sleep(0.002)
        took = time.monotonic() - began
        process.terminate()
    return took


def _is_ready() -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health/ready", timeout=1) as response:
            return response.status == 200
    except (urllib.error.URLError, ConnectionError):
        return False


def _first_frame(program: list[str], environ: Mapping[str, str]) -> float:
    """From exec under a terminal to the frame that holds the prompt."""
    leader, follower = pty.openpty()
    terminal = {**environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    began = time.monotonic()
    with subprocess.Popen(program, env=terminal, stdin=follower, stdout=follower, stderr=follower) as process:
        os.close(follower)
        seen = b""
        while FIRST_FRAME.encode() not in seen:
            assert time.monotonic() - began < WAIT_S, shlex.join(program)
            if select.select([leader], [], [], 0.5)[0]:
                seen += os.read(leader, 65_536)
        took = time.monotonic() - began
        process.kill()
    os.close(leader)
    return took
