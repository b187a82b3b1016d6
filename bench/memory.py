"""What the daemon holds and does while nothing happens, what a thousand turns leave behind, and a long memory."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import composing, remembered
from bench.figures import Figure
from bench.program import KIND, ask, connect, cpu_s, daemon, proportional_bytes
from bench.provider import BenchProvider

TURNS = 1_000
CONVERSATIONS = 10
SETTLE_S = 3.0
IDLE_S = 10.0


def figures() -> Iterator[Figure]:
    yield from _running()
    yield from remembered.figures()
    yield from composing.figures()


def _running() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, BenchProvider() as provider:
        home = Path(folder) / "fermix"
        with daemon(home, provider.base_url) as process:
            connection = connect(home)
            time.sleep(SETTLE_S)
            used_s = cpu_s(process.pid)
            time.sleep(IDLE_S)
            idle_cpu_s = cpu_s(process.pid) - used_s
            idle = proportional_bytes(connection)
            for number in range(TURNS):
                ask(connection, f"c{number % CONVERSATIONS}", "a question of usual length")
            time.sleep(SETTLE_S)
            after = proportional_bytes(connection)
    yield Figure(f"{KIND}.idle_cpu_10_s", idle_cpu_s * 1000, "ms")
    yield Figure(f"{KIND}.idle_memory", idle / 1e6, "MB (PSS)", 60.0)
    yield Figure(f"{KIND}.growth_1000_turns", (after - idle) / 1e6, "MB (PSS)", 8.0)
