"""The check in the background, under the supervisor that the daemon runs it with."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fermix.errors import NeedsOperator
from fermix.events import Event, Events, ServiceState
from fermix.store import Connection, ContentCheck, Database
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


def find_damage(_: Connection) -> None:
    error = sqlite3.DatabaseError("database disk image is malformed")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    raise error


async def find_by_run(database: Database) -> None:
    with pytest.raises(NeedsOperator):
        await database.run(find_damage)


async def find_by_post(database: Database) -> None:
    database.post(find_damage)


async def find_by_read(database: Database) -> None:
    database._path.write_bytes(b"no longer a database")
    with pytest.raises(NeedsOperator):
        await database.read("SELECT * FROM messages")


@pytest.mark.parametrize("find", [find_by_run, find_by_post, find_by_read])
async def test_damage_that_somebody_finds_parks_the_service_at_once(
    folder: Path, find: Callable[[Database], Awaitable[None]]
):
    """Issue "Memory that lasts": damage found while running is in `fermix status`, whoever found it."""
    clock = ManualClock()
    events = Events(clock)
    async with Database.open(folder / "memory.db"):
        pass  # all of it is in the file, and nothing in the log
    async with asyncio.timeout(5), Database.open(folder / "memory.db") as database:
        with events.subscribe(10) as watching:
            async with Supervisor([ContentCheck(database)], OURS, events, clock):
                up = (await watching.get()).event
                await find(database)
                parked = (await watching.get()).event

    assert up == ServiceState("database", "up")
    assert isinstance(parked, ServiceState)
    assert parked.state == "parked"
    assert "`fermix restore FILE`" in parked.reason
