"""The bench runs and tells the truth; how fast things are is for `make bench` to judge, on a machine of its own."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from bench import composing, gateway, million
from bench.figures import Figure, medians
from fermix.agent.memory import Conversations, ConversationSummary
from fermix.agent.model import AssistantMessage, ChatMessage, UserMessage
from fermix.events import Events
from fermix.message import ConversationKey
from fermix.store import Database
from tests.fakes.clock import ManualClock


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


def test_a_composed_request_is_as_large_as_it_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue "Memory that lasts", numbers: the bench asserts 40 tools and 100 messages in each request it times."""
    monkeypatch.setattr(composing, "ROUNDS", 1)

    figures = {figure.name: figure.value for figure in composing.figures()}

    assert {name.split(".")[1] for name in figures} == {"chat", "messages", "responses"}
    assert min(figures.values()) > 0


def test_a_home_of_a_million_messages_is_one_that_fermix_made(tmp_path: Path) -> None:
    million.fill(tmp_path / "memory.db", 1_000, 10)

    listed, history = asyncio.run(_look(tmp_path / "memory.db"))

    assert [line.messages for line in listed] == [100] * 10
    assert [type(message) for message in history] == [UserMessage, AssistantMessage] * 50


async def _look(path: Path) -> tuple[Sequence[ConversationSummary], Sequence[ChatMessage]]:
    clock = ManualClock()
    async with Database.open(path) as database, Conversations.open(database, clock, Events(clock)) as conversations:
        await database.check()
        history = await conversations.history(ConversationKey("cli", "c3", "root"))
        return await conversations.listing("cli"), history


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
