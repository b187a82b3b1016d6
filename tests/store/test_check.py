"""The check in the background, under the supervisor that the daemon runs it with."""

from __future__ import annotations

import asyncio
from pathlib import Path

from fermix.events import Event, Events, ServiceState
from fermix.store import ContentCheck, Database
from fermix.supervisor import OURS, Supervisor
from tests.fakes.clock import ManualClock
from tests.store.test_schema import fill_and_spoil


async def first_state(path: Path) -> Event:
    clock = ManualClock()
    events = Events(clock)
    async with asyncio.timeout(5), Database.open(path) as database:
        with events.subscribe(10) as watching:
            async with Supervisor([ContentCheck(database)], OURS, events, clock):
                return (await watching.get()).event


async def test_a_sound_file_is_up_after_its_check(folder: Path):
    assert await first_state(folder / "memory.db") == ServiceState("database", "up")


async def test_a_damaged_file_is_parked_with_the_reason(folder: Path):
    """The daemon goes on with what it can read; the operator sees which file is damaged."""
    await fill_and_spoil(folder / "memory.db")

    state = await first_state(folder / "memory.db")

    assert isinstance(state, ServiceState)
    assert (state.service, state.state) == ("database", "parked")
    assert "memory.db is damaged" in state.reason
