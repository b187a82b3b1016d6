"""How much may wait in one lane: fifty messages and a megabyte, counted when the slot is filled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.clock import SystemClock
from fermix.events import Events
from fermix.gateway.commands.catalog import COMMANDS
from fermix.gateway.gateway import FULL
from fermix.gateway.queue import Lanes
from fermix.message import ConversationKey
from fermix.trust import Trust
from tests.fakes.channel import FakeAgent, completed, message
from tests.gateway.conftest import Install, Open


class Gate:
    """Holds turns until the test lets them go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        self.entered.set()
        await self.go.wait()
        return completed(turn.message.id)


@asynccontextmanager
async def full_lane(install: Install, text: str, count: int) -> AsyncGenerator[tuple[Open, Gate]]:
    """A lane in which a turn runs and so many messages wait."""
    gate = Gate()
    async with install.start(FakeAgent(gate)) as life:
        await life.say("runs", "runs")
        await asyncio.wait_for(gate.entered.wait(), 5)
        for number in range(count):
            await life.say(text, f"m{number}")
        yield life, gate
        gate.go.set()


FULL_LANES = {
    "full of messages": ("waits", 50),
    "full of bytes": ("x" * 250_000, 4),
}


class Stopped:
    """Work that must not run."""

    def __init__(self) -> None:
        self.dropped = 0

    async def run(self) -> None:
        raise AssertionError("it was stopped before it came")

    def drop(self) -> None:
        self.dropped += 1

    def stop(self) -> None: ...

    def leave(self) -> None: ...


async def test_what_was_stopped_before_its_work_came_is_dropped_when_it_comes() -> None:
    work = Stopped()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        lanes = Lanes(group, Events(SystemClock()))
        slot = lanes.reserve(ConversationKey("chat", "1", "root"), "m1")
        assert not slot.stop()
        assert slot.fill(work)
        await lanes.idle()

    assert work.dropped == 1


@pytest.mark.parametrize(("text", "count"), FULL_LANES.values(), ids=FULL_LANES)
async def test_what_finds_a_full_lane_is_told_and_settled_as_refused(install: Install, text: str, count: int) -> None:
    async with full_lane(install, text, count) as (life, gate):
        await life.say("x", "late")
        assert await life.settled(1) == [("late", "failed")]
        assert install.platform.texts() == [FULL]
        gate.go.set()
        await life.settled(count + 1)
        await life.say("x", "later")
        assert await life.settled(1) == [("later", "completed")]

    assert [id for id, outcome in install.outcomes().items() if outcome == "refused"] == ["late"]
    assert life.agent.started == ["runs", *(f"m{number}" for number in range(count)), "later"]


@pytest.mark.parametrize(("text", "count"), FULL_LANES.values(), ids=FULL_LANES)
async def test_no_command_is_refused_for_a_full_lane(install: Install, text: str, count: int) -> None:
    """Issue 3, queue: caps apply when the slot is filled."""
    async with full_lane(install, text, count) as (life, _):
        names = [name for name in (command.name for command in COMMANDS) if name != "stop"]
        for name in names:
            await life.say(f"/{name}", name)
        await life.say("", "empty")
        handled = await life.settled(len(names) + 1)

    assert {outcome for _, outcome in handled} == {"handled"}
    assert FULL not in install.platform.texts()
    assert "refused" not in install.outcomes().values()


@pytest.mark.parametrize(("text", "count"), FULL_LANES.values(), ids=FULL_LANES)
async def test_a_stop_empties_a_full_lane_and_the_next_message_runs(install: Install, text: str, count: int) -> None:
    async with full_lane(install, text, count) as (life, gate):
        await life.say("/stop", "stop")
        await life.settled(count + 2)
        gate.go.set()
        await life.say("x", "next")
        assert await life.settled(1) == [("next", "completed")]

    outcomes = install.outcomes()
    assert (outcomes.pop("stop"), outcomes.pop("next")) == ("handled", "answered")
    assert set(outcomes.values()) == {"stopped"}
    assert life.agent.started == ["runs", "next"]


async def test_each_lane_has_a_cap_of_its_own(install: Install) -> None:
    async with full_lane(install, "waits", 50) as (life, _):
        for number in range(51):
            await life.say("x", f"b{number}", chat="b")

    assert set(install.outcomes().values()) == {"answered"}


@pytest.mark.parametrize(("text", "count"), [("waits", 150), ("x" * 100_000, 30)])
async def test_what_an_earlier_process_accepted_is_not_refused(install: Install, text: str, count: int) -> None:
    """It was acknowledged, so its sender does not send it again; only what comes now meets the cap."""
    gate = Gate()
    async with install.ledger() as ledger:
        for number in range(count):
            await ledger.accept(message(text, id=f"m{number}", channel="chat", sender="1"), Trust.OPERATOR)
    async with install.start(FakeAgent(gate)) as life:
        await life.say(text, "new")
        assert await life.settled(1) == [("new", "failed")]
        gate.go.set()
        await life.settled(count)

    assert life.agent.started == [f"m{number}" for number in range(count)]
    assert [id for id, outcome in install.outcomes().items() if outcome == "refused"] == ["new"]
