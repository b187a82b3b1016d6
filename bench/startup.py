"""How long things take to be there: the quick verbs and the daemon, each against a bare interpreter."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.figures import Figure, medians
from bench.program import KIND, PROGRAM, daemon, environment, free_port, running, until, write_config
from bench.provider import BenchProvider

RUNS = 15
BARE = (sys.executable, "-c", "pass")
# What the daemon cannot do without: event loop, HTTP server and client, SQLite, and typed config. `import pydantic`
# alone loads next to nothing: it comes with the first name that is taken from it.
START_UP_SET = """
import asyncio, json, sqlite3, tomllib, aiohttp, aiohttp.web, aiosqlite
from pydantic import BaseModel, TypeAdapter
"""


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, BenchProvider() as provider:
        yield from _quick_verbs(Path(folder) / "quick", provider)
        yield from _daemon(Path(folder) / "ready", provider)


def _quick_verbs(home: Path, provider: BenchProvider) -> Iterator[Figure]:
    environ = environment(home)
    with daemon(home, provider.base_url):
        bare, version, ask = medians(
            RUNS,
            lambda: wall_s(BARE, environ),
            lambda: wall_s((*PROGRAM, "--version"), environ),
            lambda: _ask_s(environ, provider),
        )
    yield Figure("python.pass", bare * 1000, "ms")
    yield Figure(f"{KIND}.version", version * 1000, "ms")
    yield Figure(f"{KIND}.version_ratio", version / bare, "times `python3 -c pass`", 2.5)
    yield Figure(f"{KIND}.ask", ask * 1000, "ms")
    yield Figure(f"{KIND}.ask_ratio", ask / bare, "times `python3 -c pass`", 4.0)


def _daemon(home: Path, provider: BenchProvider) -> Iterator[Figure]:
    port = free_port()
    write_config(home, provider.base_url, port=port)
    environ = environment(home)
    bare, ready = medians(
        RUNS, lambda: wall_s((sys.executable, "-c", START_UP_SET), environ), lambda: ready_s(environ, port)
    )
    yield Figure("daemon.bare_imports", bare * 1000, "ms")
    yield Figure(f"{KIND}.daemon_ready", ready * 1000, "ms")
    yield Figure(f"{KIND}.daemon_ready_ratio", ready / bare, "times its bare imports", 1.8)


def wall_s(command: Sequence[str], environ: Mapping[str, str]) -> float:
    """How long a command takes from start to end."""
    began_at = time.monotonic()
    subprocess.run(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.monotonic() - began_at


def _ask_s(environ: Mapping[str, str], provider: BenchProvider) -> float:
    """Wall time of a one-shot without what the provider took."""
    took_s = wall_s((*PROGRAM, "ask", "a question"), environ)
    return took_s - (provider.left[-1] - provider.arrived[-1])


def ready_s(environ: Mapping[str, str], port: int) -> float:
    """From exec to the first 200 of /health/ready."""
    began_at = time.monotonic()
    with running((*PROGRAM, "--daemon"), environ):
        until(lambda: _listens(port) and _is_ready(port))
        return time.monotonic() - began_at


def _listens(port: int) -> bool:
    with socket.socket() as probe:  # looked at often: a whole request each time would take CPU from the daemon
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=1) as response:
            return response.status == 200
    except (urllib.error.URLError, ConnectionError):
        return False
