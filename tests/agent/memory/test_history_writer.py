"""Three tries, in order, in the background; a failing disk costs the disk copy and nothing else."""

from __future__ import annotations

import asyncio
import logging
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from fermix.agent.memory import Conversations, history_writer
from fermix.agent.memory.conversations import DIED
from fermix.agent.model import AssistantMessage, UserMessage
from fermix.errors import LimitReached, Unavailable
from fermix.events import Events, ServiceState
from fermix.message import ConversationKey
from fermix.store import Database
from tests.fakes.clock import ManualClock
from tests.requirements import covers

ROOT = Path(__file__).parents[3]
KEY = ConversationKey("cli", "main", "root")


class FailingDatabase(Database):
    """The real database, whose next transactions fail as those of a busy file do."""

    failures = 0
    tried = 0

    async def run(self, fn, *, durable: bool = False):
        self.tried += 1
        if self.failures > 0:
            self.failures -= 1
            raise Unavailable("memory.db is in use by another program")
        return await super().run(fn, durable=durable)


def stored(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [content for (content,) in connection.execute("SELECT content FROM messages ORDER BY id")]


async def test_two_failures_delay_a_write_and_lose_nothing(tmp_path: Path):
    clock = ManualClock()
    async with (
        FailingDatabase.open(tmp_path / "memory.db") as database,
        Conversations.open(database, clock, Events(clock)) as conversations,
    ):
        await conversations.history(KEY)
        database.failures = 2
        await conversations.append(KEY, UserMessage("first"))
        await clock.until_asleep()
        await conversations.append(KEY, AssistantMessage("second"))
        clock.advance(0.1)
        await clock.until_asleep()
        clock.advance(0.2)
        await conversations.flush()

        assert clock.sleeps == [0.1, 0.2]
        assert stored(tmp_path / "memory.db") == ["first", "second"]


@covers("history.write-through")
async def test_after_three_tries_it_is_logged_not_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    clock = ManualClock(moves_itself=True)
    events = Events(clock)
    async with (
        FailingDatabase.open(tmp_path / "memory.db") as database,
        Conversations.open(database, clock, events) as conversations,
    ):
        await conversations.history(KEY)
        with events.subscribe(10) as watching:
            database.failures, database.tried = 3, 0
            await conversations.append(KEY, UserMessage("secret words"), AssistantMessage("an answer"))
            await conversations.flush()
            assert database.tried == 3
            await conversations.append(KEY, UserMessage("later"))
            await conversations.flush()

        assert len(await conversations.history(KEY)) == 4
        assert [seen.event for seen in watching.drain()] == [
            ServiceState("history", "down", "memory.db is in use by another program"),
            ServiceState("history", "up"),
        ]
    assert stored(tmp_path / "memory.db") == ["later"]
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.getMessage() == "2 history rows are kept in memory only: memory.db is in use by another program"


async def test_a_writer_that_fell_comes_back_and_writes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A bug in one batch loses that batch, not the writer: the supervisor starts it again."""
    clock = ManualClock()
    async with (
        Database.open(tmp_path / "memory.db") as database,
        Conversations.open(database, clock, Events(clock)) as conversations,
    ):
        await conversations.history(KEY)
        monkeypatch.setattr(history_writer, "INSERT", "INSERT INTO nowhere VALUES (1)")
        await conversations.append(KEY, UserMessage("lost"))
        await clock.until_asleep()
        monkeypatch.undo()
        clock.advance(0.5)
        await conversations.append(KEY, UserMessage("kept"))
        await conversations.flush()

    assert stored(tmp_path / "memory.db") == ["kept"]


async def test_flush_is_bounded_and_says_how_much_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock = ManualClock()
    monkeypatch.setattr(history_writer, "FLUSH_S", 0.01)
    async with (
        FailingDatabase.open(tmp_path / "memory.db") as database,
        Conversations.open(database, clock, Events(clock)) as conversations,
    ):
        await conversations.history(KEY)
        database.failures = 1
        await conversations.append(KEY, UserMessage("stuck"))
        await clock.until_asleep()

        with pytest.raises(LimitReached, match="1 history rows are not on disk yet"):
            await conversations.flush()
        clock.advance(0.1)

    assert stored(tmp_path / "memory.db") == ["stuck"]


async def test_closing_does_not_wait_for_ever_and_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    clock = ManualClock()
    monkeypatch.setattr(history_writer, "FLUSH_S", 0.01)
    async with (
        asyncio.timeout(5),
        FailingDatabase.open(tmp_path / "memory.db") as database,
        Conversations.open(database, clock, Events(clock)) as conversations,
    ):
        await conversations.history(KEY)
        database.failures = 1
        await conversations.append(KEY, UserMessage("stuck"))
        await clock.until_asleep()

    assert "closing: 1 history rows are not on disk yet" in caplog.text


async def test_a_disk_that_never_answers_does_not_fill_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    clock = ManualClock()
    monkeypatch.setattr(history_writer, "MOST_WAITING", 2)
    async with (
        FailingDatabase.open(tmp_path / "memory.db") as database,
        Conversations.open(database, clock, Events(clock)) as conversations,
    ):
        await conversations.history(KEY)
        database.failures = 1
        await conversations.append(KEY, UserMessage("in hand"))
        await clock.until_asleep()
        await conversations.append(KEY, *map(UserMessage, ("one", "two", "three")))
        clock.advance(0.1)
        await conversations.flush()

    assert stored(tmp_path / "memory.db") == ["in hand", "one", "two"]
    assert "history row not written, 2 already wait" in caplog.text


TALK_UNTIL_KILLED = """
import asyncio, sys
from pathlib import Path
from fermix.agent.memory import Conversations
from fermix.agent.model import AssistantMessage, UserMessage
from fermix.clock import SystemClock
from fermix.events import Events
from fermix.message import ConversationKey
from fermix.store import Database

async def main():
    clock = SystemClock()
    key = ConversationKey("cli", "main", "root")
    async with (
        Database.open(Path(sys.argv[1])) as database,
        Conversations.open(database, clock, Events(clock)) as conversations,
    ):
        for number in range(100_000):
            await conversations.append(key, UserMessage(f"q{number}"))
            await conversations.flush()
            print(number, flush=True)
            await conversations.append(key, AssistantMessage(f"a{number}"))

asyncio.run(main())
"""


def talk_until_killed(path: Path) -> int:
    command = [sys.executable, "-c", TALK_UNTIL_KILLED, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(50):
            last = int(child.stdout.readline())
        child.send_signal(signal.SIGKILL)
    return last


@covers("history.restored", "db.atomic")
async def test_a_process_killed_in_a_turn_leaves_a_history_that_goes_on(tmp_path: Path):
    """DB-10, CTX-02: kill -9 in the middle; the words are there, in order, and the open turn is closed."""
    last = talk_until_killed(tmp_path / "memory.db")
    clock = ManualClock(moves_itself=True)
    async with (
        Database.open(tmp_path / "memory.db") as database,
        Conversations.open(database, clock, Events(clock)) as conversations,
    ):
        history = await conversations.history(KEY)

    texts = [message.text for message in history if message.text != DIED]
    assert texts[: 2 * last + 1] == [f"{side}{number}" for number in range(last + 1) for side in "qa"][: 2 * last + 1]
    assert isinstance(history[-1], AssistantMessage)
