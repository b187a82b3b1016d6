"""A thousand conversations: are all asked about at once, and does the twenty-thousandth message still fit."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bench.figures import Figure
from bench.program import connect, daemon, resident_bytes, until
from bench.provider import BenchProvider
from fermix.protocol.ask import Connection

CONVERSATIONS = 1_000
ROUNDS = 20
QUESTION = "a question of usual length, which asks for twenty words and says why it does"


def figures() -> Iterator[Figure]:
    gate = threading.Event()
    with tempfile.TemporaryDirectory() as folder, BenchProvider(gate=gate) as provider:
        home = Path(folder) / "fermix"
        with daemon(home, provider.base_url) as process:
            connection = connect(home)
            _send(connection, 0)
            asked = _asked(provider)
            gate.set()
            _settled(connection)
            held = [resident_bytes(process.pid)]
            for number in range(1, ROUNDS):
                _send(connection, number)
                _settled(connection)
                held.append(resident_bytes(process.pid))
    early, late = held[: ROUNDS // 2], held[ROUNDS // 2 :]
    yield Figure("crowd.not_in_flight", CONVERSATIONS - asked, "of 1,000 conversations", 0.0)
    yield Figure("crowd.memory", max(early) / 1e6, "MB (RSS)")
    yield Figure("crowd.growth", (max(late) - max(early)) / 1e6, "MB (RSS), second half of 20,000 messages", 2.0)


def _send(connection: Connection, number: int) -> None:
    """Send one message in each conversation."""
    for chat in range(CONVERSATIONS):
        wish = {"id": f"m{number}-{chat}", "session": f"s{chat}", "text": QUESTION}
        connection.request("message.send", wish)


def _asked(provider: BenchProvider) -> int:
    """Wait until every conversation waits for its answer; returns how many do."""
    with suppress(AssertionError):  # too few is a figure like any other
        until(lambda: len(provider.arrived) == CONVERSATIONS)
    return len(provider.arrived)


def _settled(connection: Connection) -> None:
    settled = 0
    for name, params in connection.events():
        assert name != "turn.ended" or params["outcome"] == "completed", params
        settled += name == "turn.ended"
        if settled == CONVERSATIONS:
            return
