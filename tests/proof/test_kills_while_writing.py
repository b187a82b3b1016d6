"""The daemon killed while messages stream in: what was acknowledged is on disk, once, in its order, in a sound file."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import closing
from pathlib import Path

import pytest

from fermix.protocol.ask import Connection, DaemonGone, DaemonNotRunning, RequestFailed
from tests.flows.product import WAIT_S, Product, compatible, scripted
from tests.requirements import covers

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3_600)]

RUNS = int(os.environ.get("FERMIX_PROOF_KILLS", "40"))
SEED = int(os.environ.get("FERMIX_PROOF_SEED", "20261201"))
SESSIONS = ("a", "b")
LONGEST_LIFE_S = 0.6  # from the first message on: some hundred are acknowledged in that time


@pytest.fixture
def product(tmp_path: Path) -> Generator[Product]:
    with scripted(tmp_path, [{"echo": True}]) as url:
        product = Product(tmp_path, compatible(url))
        yield product
        if product.daemon is not None:
            product.kill()


class Speaker(threading.Thread):
    """One client of one session: says one message after the other, and notes each that was acknowledged."""

    def __init__(self, product: Product, session: str, run: int) -> None:
        super().__init__(daemon=True)
        self._product, self._session, self._run = product, session, run
        self.acknowledged: list[str] = []

    def run(self) -> None:
        try:
            with closing(Connection(str(self._product.home / "daemon.sock"), client="proof")) as connection:
                self._speak(connection)
        except (OSError, DaemonGone, DaemonNotRunning, RequestFailed):
            return  # the kill

    def _speak(self, connection: Connection) -> None:
        for number in range(20):  # far fewer than may wait in one conversation
            said = f"{self._session} {self._run}.{number}"
            connection.request("message.send", {"id": said, "session": self._session, "text": said})
            self.acknowledged.append(said)


@covers("db.atomic", "db.canonical")
def test_what_was_acknowledged_survives_every_kill_in_its_order(product: Product) -> None:
    """DB-10 and Issue "Memory that lasts", crash tests. `FERMIX_PROOF_SEED` replays the moments of the kills."""
    chance = random.Random(SEED)
    acknowledged: dict[str, list[str]] = {session: [] for session in SESSIONS}
    for run in range(RUNS):
        product.start()
        speakers = {session: Speaker(product, session, run) for session in SESSIONS}
        for speaker in speakers.values():
            speaker.start()
        time.sleep(chance.uniform(0.0, LONGEST_LIFE_S))
        product.kill()
        for session, speaker in speakers.items():
            speaker.join(WAIT_S)
            acknowledged[session] += speaker.acknowledged
        check(product, acknowledged)
    product.start()
    settle(product)
    product.stop()

    assert sum(map(len, acknowledged.values())) > RUNS
    check(product, acknowledged)
    check_history(product)


def read(product: Product, sql: str, *parameters: str) -> list[str]:
    with closing(sqlite3.connect(product.home / "memory.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [value for (value,) in database.execute(sql, parameters)]


def check(product: Product, acknowledged: dict[str, list[str]]) -> None:
    for session, said in acknowledged.items():
        kept = read(product, "SELECT message_id FROM inbox WHERE message_id LIKE ? ORDER BY id", f"{session} %")
        assert len(set(kept)) == len(kept), f"seed {SEED}: {session} was stored twice"
        assert [name for name in kept if name in set(said)] == said, f"seed {SEED}: {session}"


def check_history(product: Product) -> None:
    """Everything has its last word, and the history has each answered question once, in the order of arrival."""
    assert read(product, "SELECT message_id FROM inbox WHERE outcome IS NULL") == []
    for session in SESSIONS:
        arrived = "SELECT message_id FROM inbox WHERE message_id LIKE ? AND outcome = 'answered' ORDER BY id"
        asked = "SELECT content FROM messages WHERE chat_id = ? AND role = 'user' ORDER BY id"
        answered, kept = read(product, arrived, f"{session} %"), read(product, asked, session)
        assert len(set(kept)) == len(kept), f"seed {SEED}: {session} was asked twice"
        assert [name for name in kept if name in set(answered)] == answered, f"seed {SEED}: {session}"


def settle(product: Product) -> None:
    """Wait until every message has its last word."""
    deadline = time.monotonic() + 120
    while product.status()["turns_running"] or product.status()["turns_waiting"]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
