"""The daemon killed without warning, many times and at any moment: what is left can always be used."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from fermix.protocol.ask import Connection, DaemonGone, DaemonNotRunning
from tests.flows.product import Product, compatible, scripted

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3_600)]

RUNS = int(os.environ.get("FERMIX_PROOF_RUNS", "150"))
SEED = int(os.environ.get("FERMIX_PROOF_SEED", "20261130"))
SESSIONS = ("a", "b", "c")
LONGEST_LIFE_S = 0.8  # from the first message on: a turn here takes about 0.3 s

ANSWERS: list[dict[str, object]] = [
    {"calls": [{"name": "shell", "arguments": {"command": "sleep 0.1; echo done"}}]},
    {"text": "Done, as you wished.", "delay_s": 0.1},
]


@pytest.fixture
def product(tmp_path: Path) -> Generator[Product]:
    with scripted(tmp_path, ANSWERS) as url:
        product = Product(tmp_path, compatible(url))
        yield product
        if product.daemon is not None:
            product.kill()


def test_every_kill_leaves_a_home_that_starts_and_histories_that_can_be_sent(product: Product) -> None:
    """`FERMIX_PROOF_SEED` replays a run. After each kill: it starts, nothing dangles, no helper process is left."""
    chance = random.Random(SEED)
    for run in range(RUNS):
        product.start()
        _send_to_all(product, run)
        time.sleep(chance.uniform(0.0, LONGEST_LIFE_S))
        product.kill()
        _check_database(product)
    product.start()
    for session in SESSIONS:
        roles = [entry["role"] for entry in _history(product, session)]
        assert "user" not in roles[-1:], f"seed {SEED}: {session} ends with a question"
        assert product.run("ask", "--session", session, "still there?").returncode == 0


def _send_to_all(product: Product, run: int) -> None:
    connection = Connection(str(product.home / "daemon.sock"), client="proof")
    for session in SESSIONS:
        connection.request("message.send", {"id": f"{run}-{session}", "session": session, "text": f"question {run}"})
    connection.close()


def _check_database(product: Product) -> None:
    with sqlite3.connect(product.home / "memory.db") as database:
        assert database.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    database.close()


def _history(product: Product, session: str) -> list[dict[str, object]]:
    try:
        connection = Connection(str(product.home / "daemon.sock"), client="proof")
        entries = connection.request("conversation.history", {"session": session, "limit": 500})["entries"]
    except (DaemonGone, DaemonNotRunning) as error:
        raise AssertionError("the daemon is gone") from error
    connection.close()
    assert isinstance(entries, list)
    return entries
