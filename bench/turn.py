"""Turn overhead: message in to request out, plus the last byte to reply out; against the minimal turn.

Both sides send 25 tools and twenty messages of history, and what they sent is looked at.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from bench import booking
from bench.figures import Figure, p50
from bench.program import ask, connect, cpu_s, daemon, environment, running, until
from bench.provider import BenchProvider

ROUNDS = 40
TOOLS = 25
UNSEEN_TOOLS = 5  # of the daemon's own, which a local client is not shown
HISTORY = 20
QUESTION = "words " * 40
SETTLE_S = 0.02  # what a daemon still does after its reply is not the next turn's

Ask = Callable[[], float]


@dataclass
class Side:
    """One of the two daemons. `conversation` begins a new one and returns how to ask in it."""

    pid: int
    conversation: Callable[[], Ask]
    in_s: list[float] = field(default_factory=list)
    out_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    sent_bytes: int = 0

    def measure(self, provider: BenchProvider) -> None:
        """One turn with a history of twenty messages."""
        ask_here = self.conversation()
        for _ in range(HISTORY // 2):
            ask_here()
        time.sleep(SETTLE_S)
        used_s = cpu_s(self.pid)
        began_at = time.monotonic()
        replied_at = ask_here()
        self.in_s.append(provider.arrived[-1] - began_at)
        self.out_s.append(replied_at - provider.left[-1])
        time.sleep(SETTLE_S)
        self.cpu_s.append(cpu_s(self.pid) - used_s)
        self.sent_bytes = _checked(provider.last_body)

    @property
    def overhead_s(self) -> float:
        return p50([one + other for one, other in zip(self.in_s, self.out_s, strict=True)])

    def told(self, name: str) -> Iterator[Figure]:
        yield Figure(f"{name}.in", p50(self.in_s) * 1000, "ms")
        yield Figure(f"{name}.out", p50(self.out_s) * 1000, "ms")
        yield Figure(f"{name}.overhead", self.overhead_s * 1000, "ms")
        yield Figure(f"{name}.cpu", p50(self.cpu_s) * 1000, "ms")
        yield Figure(f"{name}.request_size", self.sent_bytes / 1000, "kB")


def figures() -> Iterator[Figure]:
    """Both daemons answer in turn, so that the machine's mood meets both alike. The first round only warms them."""
    with tempfile.TemporaryDirectory() as folder, BenchProvider() as provider:
        home = Path(folder)
        with _minimal(home, provider.base_url) as least, _real(home / "fermix", provider.base_url) as real:
            for _ in range(ROUNDS + 1):
                least.measure(provider)
                real.measure(provider)
    for side in (least, real):
        del side.in_s[0], side.out_s[0], side.cpu_s[0]
    yield from least.told("turn.minimal")
    yield from real.told("turn.fermix")
    # A slow disk flatters the ratio of times, because the minimal turn waits for it; CPU it cannot flatter.
    yield Figure("turn.cpu_ratio", p50(real.cpu_s) / p50(least.cpu_s), "times the minimal turn", 5.0)
    yield Figure("turn.booking_ratio", booking.cpu_s(TOOLS, HISTORY) / p50(real.cpu_s), "of a turn's CPU", 0.06)
    yield Figure("turn.overhead_ratio", real.overhead_s / least.overhead_s, "times the minimal turn", 5.0)


def _checked(body: bytes) -> int:
    """Return the size of a request that is as large as it must be."""
    request = json.loads(body)
    talk = [message for message in request["messages"] if message["role"] in ("user", "assistant")]
    assert len(request["tools"]) == TOOLS, f"{len(request['tools'])} tools were sent"
    assert len(talk) == HISTORY + 1, f"{len(talk)} messages were sent"
    return len(body)


@contextmanager
def _minimal(home: Path, url: str) -> Generator[Side]:
    path = home / "minimal.sock"
    command = [sys.executable, "-m", "bench.minimal", str(path), str(home / "minimal.db"), url]
    with running(command, environment(home)) as process, socket.socket(socket.AF_UNIX) as client:
        until(lambda: client.connect_ex(str(path)) == 0)
        reader = client.makefile("rb")

        def ask_it() -> float:
            client.sendall(json.dumps({"text": QUESTION}).encode() + b"\n")
            reader.readline()
            return time.monotonic()

        yield Side(process.pid, lambda: ask_it)


@contextmanager
def _real(home: Path, url: str) -> Generator[Side]:
    """The real daemon with as many tools as the yardstick has."""
    command = [sys.executable, "-m", "bench.daemon"]
    with daemon(home, url, command=command, variables={"FERMIX_BENCH_TOOLS": str(TOOLS + UNSEEN_TOOLS)}) as process:
        connection, sessions = connect(home), count()

        def conversation() -> Ask:
            session = f"bench{next(sessions)}"
            return lambda: ask(connection, session, QUESTION)

        yield Side(process.pid, conversation)
