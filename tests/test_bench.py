"""The bench runs and tells the truth; how fast things are is for `make bench` to judge, on a machine of its own."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bench import gateway
from bench.figures import Figure, medians


def test_a_figure_past_its_bound_is_not_ok() -> None:
    """`make bench`: one JSON object a line with name, value, unit, must and ok."""
    line = json.loads(Figure("screen.key_echo", 50.12345, "ms", 50.0).line())

    assert line == {"name": "screen.key_echo", "value": 50.123, "unit": "ms", "must": 50.0, "ok": False}


def test_a_figure_without_a_bound_is_only_told() -> None:
    assert Figure("python.pass", 1e9, "ms").ok


def test_measures_alternate_and_their_first_round_is_not_counted() -> None:
    called: list[str] = []

    def measure(name: str) -> float:
        called.append(name)
        return 1000.0 if called.count(name) == 1 else float(called.count(name))

    assert medians(3, lambda: measure("one"), lambda: measure("other")) == [3.0, 3.0]
    assert called == ["one", "other"] * 4


def test_a_message_that_is_lost_or_stored_twice_or_unanswered_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue "The gateway", numbers: every message in the ledger once. The bench must be able to see it otherwise."""
    monkeypatch.setattr(gateway, "RATE_HZ", 5)
    monkeypatch.setattr(gateway, "SECONDS", 1)
    with closing(sqlite3.connect(tmp_path / "memory.db")) as database, database:
        database.execute("create table inbox (message_id text, outcome text)")
        rows = [("m0", "answered"), ("m1", "answered"), ("m1", "answered"), ("m2", None), ("m3", "answered")]
        database.executemany("insert into inbox values (?, ?)", rows)

    assert gateway.wrong(tmp_path / "memory.db") == len({"m1 twice", "m2 unanswered", "m4 lost"})


@pytest.mark.slow
def test_webhook_messages_under_load_are_each_acknowledged_and_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue "The gateway", numbers, for a shorter time than `make bench`; how soon is for that to judge."""
    monkeypatch.setattr(gateway, "SECONDS", 2)

    figures = {figure.name: figure.value for figure in gateway.webhook(tmp_path)}

    assert (figures["webhook.not_acknowledged"], figures["webhook.lost_or_doubled"]) == (0, 0)
    assert figures["webhook.commits"] > 0


@pytest.mark.slow
def test_two_hundred_conversations_at_once_are_all_answered_in_their_own_place() -> None:
    """Issue "The spine", numbers: none lost or crossed."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", "load"], capture_output=True, check=False, text=True, timeout=50
    )

    figures = {line["name"]: line["value"] for line in map(json.loads, done.stdout.splitlines())}
    assert figures["load.lost_or_crossed"] == 0
    assert figures["load.longest_callback"] > 0
