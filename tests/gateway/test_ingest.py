"""The way in over the ledger: what is acknowledged is on disk, once, and a full lane says so."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.errors import NeedsOperator, Unavailable
from fermix.events import ServiceState
from fermix.gateway import Ledger
from fermix.gateway.delivery import MARK
from fermix.gateway.gateway import EMPTY, FULL, RESTARTING
from fermix.gateway.ledger import Entry, Outgoing
from fermix.message import Attachment, Message, Reply, Text
from fermix.trust import Trust
from tests.fakes.channel import FakeAgent, FakeChannel, completed, message
from tests.fakes.clock import ManualClock
from tests.fakes.platform import AWAY, rate_limited
from tests.gateway.conftest import Install
from tests.requirements import covers


class Gate:
    """Holds turns until the test lets them go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        self.entered.set()
        await self.go.wait()
        return completed(turn.message.id)


async def test_a_message_is_on_disk_when_the_platform_is_told(install: Install) -> None:
    """DLV-06: write first, acknowledge second."""
    gate = Gate()
    async with install.start(FakeAgent(gate)) as life:
        await life.say("hi")
        assert install.outcomes() == {"m1": None}
        gate.go.set()
        await life.settled(1)


async def test_a_second_delivery_is_acknowledged_and_answers_nothing(install: Install) -> None:
    """DLV-03, DLV-10: also while the first one runs, also after a restart."""
    gate = Gate()
    async with install.start(FakeAgent(gate)) as life:
        for _ in range(3):
            await life.say("hi")
        gate.go.set()
        await life.settled(1)
        await life.say("hi")
    async with install.start() as later:
        await later.say("hi")

    assert (life.agent.started, later.agent.started) == (["m1"], [])
    assert install.platform.texts() == ["m1"]


async def test_what_cannot_be_written_is_not_acknowledged_and_the_retry_runs(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DLV-02: an error on the way in leaves the message eligible."""

    async def full(*_: object, **__: object) -> None:
        raise NeedsOperator("the disk is full", advice="free some space")

    async with install.start() as life:
        with monkeypatch.context() as broken:
            broken.setattr(life.ledger, "accept", full)
            with pytest.raises(NeedsOperator):
                await life.say("hi")
        assert life.agent.started == []
        await life.say("hi")
        await life.settled(1)

    assert install.platform.texts() == ["HI"]


async def test_a_bug_on_the_way_in_reaches_the_adapter_and_no_other_message(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("bug")

    async with install.start() as life:
        with monkeypatch.context() as patch:
            patch.setattr(life.ledger, "accept", broken)
            with pytest.raises(RuntimeError):
                await life.say("bad")
        await life.say("good", "m2")
        assert await life.settled(1) == [("m2", "completed")]


async def test_an_adapter_that_is_cancelled_takes_no_accepted_message_along(install: Install) -> None:
    async with install.start() as life:
        with closing(sqlite3.connect(install.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with asyncio.TaskGroup() as group:
                adapter = group.create_task(life.say("hi"))
                await asyncio.sleep(0)
                adapter.cancel()
        assert await life.settled(1) == [("m1", "completed")]


async def test_messages_that_come_together_keep_their_order(install: Install) -> None:
    async with install.start() as life:
        async with asyncio.TaskGroup() as group:
            for number in range(40):
                group.create_task(life.say("hi", f"m{number:02}"))
        await life.settled(40)

    assert life.agent.started == [f"m{number:02}" for number in range(40)]


async def test_a_full_lane_tells_the_sender_and_takes_commands(install: Install) -> None:
    """Issue 3, queue: 50 may wait; past that the sender is told and the row is settled as refused."""
    gate = Gate()
    async with install.start(FakeAgent(gate)) as life:
        await life.say("runs", "first")
        await asyncio.wait_for(gate.entered.wait(), 5)
        for number in range(50):
            await life.say("waits", f"m{number}")
        await life.say("too many", "last")
        await life.say("/whoami", "command")
        await life.say("elsewhere", "other", chat="b")
        assert dict(await life.settled(2)) == {"last": "failed", "command": "handled"}
        gate.go.set()
        await life.settled(50 + 2)

    outcomes = install.outcomes()
    assert (outcomes.pop("last"), outcomes.pop("command")) == ("refused", "handled")
    assert set(outcomes.values()) == {"answered"}
    assert install.platform.texts().count(FULL) == 1


async def test_a_lane_holds_a_megabyte_and_one_long_message_runs_at_once(install: Install) -> None:
    gate = Gate()
    long = "x" * 1_000_001
    async with install.start(FakeAgent(gate)) as life:
        await life.say(long, "m1")
        await asyncio.wait_for(gate.entered.wait(), 5)
        await life.say("é" * 500_000, "m2")
        await life.say("x", "m3")
        assert await life.settled(1) == [("m3", "failed")]
        gate.go.set()
        assert dict(await life.settled(2)) == {"m1": "completed", "m2": "completed"}


@covers("enqueue.agent-not-ready")
async def test_while_the_daemon_goes_the_sender_is_told(install: Install) -> None:
    async with install.start() as life:
        await life.gateway.drain()
        await life.say("hi")
        await life.settled(1)

    assert install.platform.texts() == [RESTARTING]
    assert install.outcomes() == {"m1": "refused"}


async def test_a_platform_that_is_away_for_a_while_gets_the_reply_later(install: Install) -> None:
    install.platform.fail("send", AWAY, rate_limited(20.0), AWAY)
    async with install.start() as life:
        await life.say("hi")
        assert await life.settled(1) == [("m1", "completed")]

    assert install.platform.texts() == ["HI"]
    assert install.clock.sleeps == [1.0, 20.0, 4.0]


async def test_an_adapter_that_breaks_in_a_send_ends_no_lane(install: Install) -> None:
    class Buggy(FakeChannel):
        bugs = 1

        async def send(self, message: Message, reply: Reply, key: str) -> str:
            if self.bugs:
                self.bugs -= 1
                raise KeyError("chat")
            return await super().send(message, reply, key)

    async with install.start(channel=Buggy("chat", platform=install.platform, can=())) as life:
        await life.say("hi", "m1")
        await life.say("", "m2")
        await life.settled(2)

    assert sorted(install.platform.texts()) in (sorted([f"{MARK}HI", EMPTY]), sorted(["HI", f"{MARK}{EMPTY}"]))


async def test_a_disk_that_fills_up_keeps_the_answer_for_the_next_start(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be written down is not sent: it could be sent twice. The lane and the screen go on."""

    async def full(*_: object, **__: object) -> None:
        raise NeedsOperator("the disk is full", advice="free some space")

    async with install.start() as life:
        with monkeypatch.context() as broken:
            broken.setattr(life.ledger, "outgoing", full)
            await life.say("hi", "m1")
            assert await life.settled(1) == [("m1", "failed")]
            await life.say(" ", "m2")
            await life.gateway.lanes.idle()
        assert (install.platform.texts(), install.outcomes()) == ([], {"m1": None, "m2": None})
    async with install.start() as life:
        await life.settled(2)

    assert sorted(install.platform.texts()) == ["HI", EMPTY]


async def test_a_database_that_is_held_for_a_while_delays_an_answer_and_no_more(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup holds it; the answer is there, and nobody should have to restart us for it."""
    async with install.start() as life:
        write, refusals = life.ledger.outgoing, 4

        async def held(*args: Any, **options: Any) -> Any:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise Unavailable("the database is in use by another program")
            return await write(*args, **options)

        monkeypatch.setattr(life.ledger, "outgoing", held)
        await life.say("hi")
        assert await life.settled(1) == [("m1", "completed")]

    assert (install.platform.texts(), install.outcomes()) == (["HI"], {"m1": "answered"})
    assert install.clock.sleeps == [1.0, 2.0, 4.0, 8.0]


async def test_a_database_that_is_held_between_two_parts_delays_the_second(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.platform.text_limit = 60
    async with install.start() as life:
        write, refusals = life.ledger.sending, 2

        async def held(outgoing: Outgoing) -> None:
            nonlocal refusals
            if refusals:
                refusals -= 1
                raise Unavailable("the database is in use by another program")
            await write(outgoing)

        monkeypatch.setattr(life.ledger, "sending", held)
        await life.say("many words " * 8)
        assert await life.settled(1) == [("m1", "completed")]

    assert len(install.platform.texts()) > 1
    assert {state for (state,) in install.rows("SELECT state FROM outbox")} == {"sent"}


async def test_a_stop_ends_the_wait_for_a_database(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install.clock = ManualClock()

    async def held(*_: object, **__: object) -> None:
        raise Unavailable("the database is in use by another program")

    async with install.start() as life:
        with monkeypatch.context() as patch:
            patch.setattr(life.ledger, "outgoing", held)
            await life.say("hi")
            await install.clock.until_asleep()
            life.gateway.stop(message("", channel="chat").key)
            assert await life.settled(1) == [("m1", "failed")]
    async with install.start() as life:
        assert await life.settled(1) == [("m1", "cancelled")]

    assert (install.platform.texts(), install.outcomes()) == ([], {"m1": "stopped"})


@pytest.mark.parametrize("wish_s", [float("nan"), -5.0, float("-inf")])
async def test_a_wish_that_nobody_can_follow_is_none(install: Install, wish_s: float) -> None:
    """Slept on, no number never ends: the lane stands, and with it every other timer of the loop is in doubt."""
    install.platform.fail("send", rate_limited(wish_s))
    async with install.start() as life:
        await life.say("hi")
        assert await life.settled(1) == [("m1", "completed")]

    assert (install.platform.texts(), install.clock.sleeps) == (["HI"], [1.0])


class Leaking(FakeChannel):
    """Its library lets a cancellation out that nobody asked for."""

    left = 1

    async def send(self, message: Message, reply: Reply, key: str) -> str:
        if self.left:
            self.left -= 1
            raise asyncio.CancelledError
        return await super().send(message, reply, key)

    @asynccontextmanager
    async def download(self, attachment: Attachment) -> AsyncGenerator[AsyncIterator[bytes]]:
        raise asyncio.CancelledError
        yield  # pragma: no cover


async def test_a_send_that_breaks_off_by_itself_is_one_whose_fate_is_unknown(install: Install) -> None:
    async with install.start(channel=Leaking("chat", platform=install.platform, can=())) as life:
        await life.say("hi")
        assert await life.settled(1) == [("m1", "completed")]

    assert (install.platform.texts(), install.outcomes()) == ([f"{MARK}HI"], {"m1": "answered"})


async def test_a_download_that_breaks_off_by_itself_fails_its_message_and_not_its_lane(install: Install) -> None:
    channel = Leaking("chat", platform=install.platform, can=["downloads"])
    channel.left = 0
    async with install.start(channel=channel) as life:
        picture = (Attachment("image", "picture", "image/png"),)
        await life.gateway.ingest(message("look", channel="chat", sender="1", attachments=picture), channel)
        await life.say("next", "m2")
        assert await life.settled(2) == [("m1", "failed"), ("m2", "completed")]


async def test_half_a_character_in_what_a_platform_says_is_replaced(install: Install) -> None:
    """Else the disk refuses the note that a reply was sent, and the next start sends it again."""

    class Odd(FakeChannel):
        async def send(self, message: Message, reply: Reply, key: str) -> str:
            return f"{await super().send(message, reply, key)}\ud800"

    async with install.start(channel=Odd("chat", platform=install.platform, can=())) as life:
        await life.say("hi")
        await life.settled(1)

    assert install.rows("SELECT state, platform_id FROM outbox") == [("sent", "p1\ufffd")]


async def test_a_wait_that_is_too_long_is_not_waited(install: Install) -> None:
    install.platform.fail("send", rate_limited(181.0))
    async with install.start() as life:
        await life.say("hi")
        assert await life.settled(1) == [("m1", "failed")]

    assert install.clock.sleeps == []
    assert install.outcomes() == {"m1": "answered"}
    assert install.rows("SELECT state FROM outbox") == [("failed",)]


async def test_a_platform_that_stays_away_is_tried_five_times(install: Install) -> None:
    """Issue 3, ledger: retries are bounded in tries and age, and who watches hears of a delivery that failed."""
    install.platform.fail("send", *[AWAY] * 6)
    async with install.start() as life:
        await life.say("hi")
        assert await life.settled(1) == [("m1", "failed")]

    assert install.clock.sleeps == [1.0, 2.0, 4.0, 8.0]
    assert install.outcomes() == {"m1": "answered"}
    assert install.rows("SELECT state FROM outbox") == [("failed",)]


async def test_what_two_tools_say_at_once_comes_one_after_the_other(install: Install) -> None:
    install.platform.text_limit = len(MARK) + 4

    async def two(turn: Turn, port: ReplyPort) -> TurnOutcome:
        async with asyncio.TaskGroup() as group:
            for text in ("aaaa aaaa", "bbbb bbbb"):
                group.create_task(port.send(Text(text)))
        return completed("done")

    async with install.start(FakeAgent(two)) as life:
        await life.say("hi")
        assert await life.settled(1) == [("m1", "completed")]

    assert len(install.platform.texts()) > 4
    assert "".join("".join(install.platform.texts()).split()) == "aaaaaaaabbbbbbbbdone"


async def test_a_stop_ends_the_wait_for_a_platform_and_begins_no_further_send(install: Install) -> None:
    """QUE-01 in the phase of delivery."""
    install.platform.fail("send", AWAY)
    async with install.start() as life:
        install.clock._moves_itself = False
        await life.say("hi")
        await install.clock.until_asleep()
        await life.say("/stop", "m2")
        assert dict(await life.settled(2)) == {"m1": "cancelled", "m2": "handled"}

    assert install.platform.texts() == ["Stopped."]
    assert install.outcomes() == {"m1": "stopped", "m2": "handled"}


async def test_a_text_the_turn_has_sent_is_not_sent_again_as_its_answer(install: Install) -> None:
    """DLV-09: a tool sends T, and the turn ends with T."""

    async def twice(turn: Turn, port: ReplyPort) -> TurnOutcome:
        await port.send(Text("done"))
        return completed("done")

    async with install.start(FakeAgent(twice)) as life:
        await life.say("hi")
        assert await life.settled(1) == [("m1", "completed")]

    assert install.platform.texts() == ["done"]
    assert install.rows("SELECT answer FROM inbox") == [("done",)]


@pytest.mark.parametrize(("told", "said"), [("done\n", "done"), ("done", "\ndone "), (" done", "done\n\n")])
async def test_blanks_around_a_text_make_it_no_other_one(install: Install, told: str, said: str) -> None:
    """DLV-09: nobody sees them, so the second copy would be read as a second message."""

    async def twice(turn: Turn, port: ReplyPort) -> TurnOutcome:
        await port.send(Text(told))
        return completed(said)

    async with install.start(FakeAgent(twice)) as life:
        await life.say("hi")
        assert await life.settled(1) == [("m1", "completed")]

    assert [text.strip() for text in install.platform.texts()] == ["done"]


async def test_an_effect_is_on_disk_before_the_turn_goes_on(install: Install) -> None:
    async def acts(turn: Turn, port: ReplyPort) -> TurnOutcome:
        await port.effect("shell")
        await port.effect("write_file")
        return completed(str(install.rows("SELECT effect FROM inbox")))

    async with install.start(FakeAgent(acts)) as life:
        await life.say("hi")
        await life.settled(1)

    assert install.platform.texts() == ["[('shell',)]"]


async def test_only_the_first_effect_of_a_turn_waits_for_the_disk(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 3, ledger: inbox, outbox and the begin mark of an effect are the only disk waits of a turn."""
    marked: list[str] = []
    effect = Ledger.effect

    async def watched(ledger: Ledger, entry: Entry, name: str) -> None:
        marked.append(name)
        await effect(ledger, entry, name)

    async def acts(turn: Turn, port: ReplyPort) -> TurnOutcome:
        await port.effect("shell")
        await port.effect("write_file")
        return completed("done")

    monkeypatch.setattr(Ledger, "effect", watched)
    async with install.start(FakeAgent(acts)) as life:
        await life.say("hi")
        await life.settled(1)

    assert marked == ["shell"]


async def test_half_a_character_in_an_answer_keeps_it_from_no_row(install: Install) -> None:
    async def half(turn: Turn, port: ReplyPort) -> TurnOutcome:
        return completed("a \ud800 b")

    async with install.start(FakeAgent(half)) as life:
        await life.say("hi")
        assert await life.settled(1) == [("m1", "completed")]

    assert install.platform.texts() == ["a � b"]
    assert install.rows("SELECT answer FROM inbox") == [("a � b",)]


async def test_the_row_of_a_message_knows_whether_its_sender_may_run_commands(install: Install) -> None:
    async with install.start() as life:
        for sender in ("1", "2", "4"):
            await life.say("hi", sender, sender=sender)
        await life.settled(3)

    rows = install.rows("SELECT message_id, commands FROM inbox ORDER BY id")
    assert rows == [("1", 1), ("2", 0), ("4", 1)]


async def test_the_row_of_a_message_knows_its_trust(install: Install) -> None:
    async with install.start() as life:
        await life.say("hi", "m1", sender="1")
        await life.say("hi", "m2", sender="2")
        await life.gateway.ingest(message("hi", id="m3", channel="chat", sender="3"), life.channel)
        await life.settled(2)

    assert install.rows("SELECT message_id, trust FROM inbox") == [
        ("m1", Trust.OPERATOR.value),
        ("m2", Trust.GUEST.value),
    ]


async def test_who_watches_is_told_when_nothing_can_be_taken_and_when_it_can_again(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The product refuses messages on a full disk; `fermix status` must not call that ready."""

    async def full(*_: object, **__: object) -> None:
        raise NeedsOperator("the disk is full", advice="free some space")

    async with install.start() as life:
        with monkeypatch.context() as patch:
            patch.setattr(life.ledger, "accept", full)
            for _ in range(2):
                with pytest.raises(NeedsOperator):
                    await life.say("hi")
        await life.say("hi")
        await life.say("hi")  # seen before: says nothing about the disk
        told = [item.event for item in life.news.drain() if isinstance(item.event, ServiceState)]

    assert told == [ServiceState("ledger", "down", "the disk is full: free some space"), ServiceState("ledger", "up")]


@pytest.mark.parametrize("text", ["hello", ""])
async def test_an_answer_that_cannot_be_written_down_ends_for_who_watches_and_comes_at_the_next_start(
    install: Install, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Nothing is sent that is no row; the conversation goes on meanwhile."""

    async def full(*_: object, **__: object) -> None:
        raise NeedsOperator("the disk is full", advice="free some space")

    async with install.start() as life:
        with monkeypatch.context() as patch:
            patch.setattr(life.ledger, "outgoing", full)
            await life.say(text, id="m1")
            lost = await life.settled(1)
        await life.say("next", id="m2")
        after = await life.settled(1)
    assert (lost, after) == ([("m1", "failed")], [("m2", "completed")])
    assert install.platform.texts() == ["NEXT"]

    async with install.start() as later:
        await later.settled(1)
    assert install.platform.texts() == ["NEXT", text.upper() or EMPTY]


async def test_a_reply_that_was_given_up_is_not_flushed_into_a_later_turn(install: Install) -> None:
    """DLV-11: a reply is bound to its message; the next one gets its own and nothing else."""
    install.platform.fail("send", *[AWAY] * 5)
    async with install.start() as life:
        await life.say("a", "m1")
        await life.say("b", "m2")
        await life.settled(2)
    async with install.start() as life:
        await life.say("c", "m3")
        await life.settled(1)

    assert [(one.answers, one.text) for one in install.platform.shown()] == [("m2", "B"), ("m3", "C")]
