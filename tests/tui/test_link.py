"""The connection that comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fermix.errors import NeedsOperator
from fermix.protocol.client import DaemonGone
from fermix.tui.link import LONGEST_DELAY_S, MAX_HELD, Link, Outgoing, StartDaemon
from fermix.tui.wire import Fields
from tests.fakes.clock import ManualClock
from tests.fakes.daemon import FakeDaemon


class Watcher:
    def __init__(self) -> None:
        self.told: list[str] = []
        self._news = asyncio.Condition()

    async def on_up(self) -> None:
        await self._tell("up")

    def on_event(self, name: str, fields: Fields) -> None:
        self.told.append(f"event {name} {dict(fields)}")

    def on_down(self, reason: str) -> None:
        self.told.append(f"down {reason}")

    def on_news(self, sentence: str) -> None:
        self.told.append(f"news {sentence}")

    def on_refused(self, message_id: str, session: str, sentence: str) -> None:
        self.told.append(f"refused {message_id} {session} {sentence}")

    async def _tell(self, what: str) -> None:
        async with self._news:
            self.told.append(what)
            self._news.notify_all()

    async def until_up(self, times: int = 1) -> None:
        async with asyncio.timeout(5), self._news:
            await self._news.wait_for(lambda: self.told.count("up") >= times)


class Stand:
    def __init__(self, daemon: FakeDaemon, start: StartDaemon | None) -> None:
        self.daemon = daemon
        self.watcher = Watcher()
        self.clock = ManualClock()
        self.link = Link(daemon.connect, start, self.watcher, self.clock)


@asynccontextmanager
async def running(daemon: FakeDaemon, start: StartDaemon | None = None) -> AsyncGenerator[Stand]:
    stand = Stand(daemon, start)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(stand.link.run())
        yield stand
        task.cancel()


def message(number: int) -> Outgoing:
    return Outgoing(f"m{number}", "cli", f"text {number}", Path("/tmp"))


async def test_held_messages_are_sent_in_order_once_connected():
    async with running(FakeDaemon()) as stand:
        for number in range(3):
            stand.link.send(message(number))
        await stand.daemon.wait_for("message.send", 3)

    assert [sent["id"] for sent in stand.daemon.sent("message.send")] == ["m0", "m1", "m2"]
    assert stand.daemon.requests[0] == ("events.subscribe", {"sessions": None, "services": True})


async def test_message_whose_answer_was_lost_goes_out_again_with_its_id():
    class Dying(FakeDaemon):
        async def take(self, method: str, params: Fields) -> dict[str, object]:
            answer = await super().take(method, params)
            if method == "message.send" and len(self.sent("message.send")) == 1:
                raise DaemonGone("cut")
            return answer

    async with running(Dying()) as stand:
        stand.link.send(message(1))
        await stand.daemon.wait_for("message.send")
        await stand.clock.until_asleep()
        stand.clock.advance(LONGEST_DELAY_S)
        await stand.daemon.wait_for("message.send", 2)

    assert [sent["id"] for sent in stand.daemon.sent("message.send")] == ["m1", "m1"]


async def test_refused_message_is_reported_and_does_not_block_the_next():
    daemon = FakeDaemon()
    daemon.refuses["message.send"] = "the session name is wrong"
    async with running(daemon) as stand:
        stand.link.send(message(1))
        stand.link.send(message(2))
        await daemon.wait_for("message.send", 2)
        await stand.watcher.until_up()

    assert "refused m1 cli The daemon refused: the session name is wrong" in stand.watcher.told


async def test_daemon_is_started_once_and_only_if_none_answered():
    started: list[str] = []
    daemon = FakeDaemon(up=False)

    async def start() -> str:
        started.append("now")
        daemon.up = True
        return "started"

    async with running(daemon, start) as stand:
        await stand.clock.until_asleep()
        stand.clock.advance(LONGEST_DELAY_S)
        await stand.watcher.until_up()
        daemon.up = False
        daemon.drop()
        await stand.clock.until_asleep()
        stand.clock.advance(LONGEST_DELAY_S)
        await stand.clock.until_asleep()

    assert started == ["now"]
    assert stand.watcher.told[:3] == ["down ", "news started", "up"]


async def test_daemon_that_answers_is_never_started_later():
    started: list[str] = []

    async def start() -> str:
        started.append("now")
        return "started"

    async with running(FakeDaemon(), start) as stand:
        await stand.watcher.until_up()
        stand.daemon.up = False
        stand.daemon.drop()
        await stand.clock.until_asleep()

    assert started == []


async def test_daemon_that_cannot_be_started_is_said():
    async def start() -> str:
        raise NeedsOperator("the disk is full", advice="free some space")

    async with running(FakeDaemon(up=False), start) as stand:
        await stand.clock.until_asleep()

    assert stand.watcher.told == ["down ", "news the disk is full: free some space"]


async def test_waiting_between_tries_grows_and_is_bounded():
    async with running(FakeDaemon(up=False)) as stand:
        for _ in range(8):
            await stand.clock.until_asleep()
            stand.clock.advance(LONGEST_DELAY_S)

    assert stand.clock.sleeps[:8] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


async def test_too_many_held_messages_are_not_taken():
    link = Link(FakeDaemon().connect, None, Watcher(), ManualClock())

    assert [link.send(message(number)) for number in range(MAX_HELD + 1)] == [True] * MAX_HELD + [False]


async def test_asking_without_a_connection_says_so():
    link = Link(FakeDaemon().connect, None, Watcher(), ManualClock())

    with pytest.raises(DaemonGone, match="not connected"):
        await link.request("status", {})
