from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from fermix.errors import NeedsOperator
from fermix.events import EventQueue, Events, ServiceState
from fermix.supervisor import OURS, OUTSIDE, GaveUp, Restart, Supervisor
from tests.fakes.clock import ManualClock
from tests.requirements import covers

Run = Callable[[Callable[[], None]], Awaitable[None]]


class Scripted:
    """A service whose runs are given one by one; past the last one it runs until it is cancelled."""

    def __init__(self, name: str, *runs: Run, journal: list[str] | None = None) -> None:
        self.name = name
        self.starts = 0
        self.serving = asyncio.Event()
        self._runs = runs
        self._journal = journal if journal is not None else []

    async def run(self, started: Callable[[], None]) -> None:
        self.starts += 1
        if self.starts <= len(self._runs):
            await self._runs[self.starts - 1](started)
            return
        self._journal.append(f"{self.name} opened")
        started()
        self.serving.set()
        try:
            await asyncio.Event().wait()
        finally:
            self._journal.append(f"{self.name} closed")


async def crash(_started: Callable[[], None]) -> None:
    raise RuntimeError("broken")


async def crash_once_up(started: Callable[[], None]) -> None:
    started()
    raise RuntimeError("broken while up")


async def end(started: Callable[[], None]) -> None:
    started()


async def need_owner(_started: Callable[[], None]) -> None:
    raise NeedsOperator("no token", advice="run setup")


@contextmanager
def listening(events: Events) -> Iterator[EventQueue]:
    with events.subscribe(100) as queue:
        yield queue


def states(queue: EventQueue, service: str) -> list[tuple[str, str]]:
    return [
        (item.event.state, item.event.reason)
        for item in queue.drain()
        if isinstance(item.event, ServiceState) and item.event.service == service
    ]


async def supervise(
    services: Sequence[Scripted], until: asyncio.Event, restart: Restart = OURS, clock: ManualClock | None = None
) -> tuple[EventQueue, ManualClock]:
    """Run the services until the event is set; returns what was told and the clock."""
    clock = clock or ManualClock(moves_itself=True)
    events = Events(clock)
    with listening(events) as queue:
        async with asyncio.timeout(5), Supervisor(services, restart, events, clock):
            await until.wait()
    return queue, clock


@covers("proc.supervised.restart")
@pytest.mark.parametrize(
    ("run", "told"),
    [
        (crash, [("down", "RuntimeError('broken')")]),
        (crash_once_up, [("up", ""), ("down", "RuntimeError('broken while up')")]),
        (end, [("up", ""), ("down", "returned")]),
    ],
)
async def test_a_service_that_ends_is_started_again(run: Run, told: list[tuple[str, str]]) -> None:
    """A head 3: a long-lived part that dies is started again by itself; also one that merely returns."""
    service = Scripted("part", run)
    queue, _ = await supervise([service], service.serving)

    assert service.starts == 2
    assert states(queue, "part") == [*told, ("up", "")]


async def test_the_others_do_not_notice_that_one_died() -> None:
    calm, restless = Scripted("calm"), Scripted("restless", crash, crash)
    queue, _ = await supervise([calm, restless], restless.serving)

    assert (calm.starts, restless.starts) == (1, 3)
    assert states(queue, "calm") == [("up", "")]


async def test_the_delay_grows_with_each_failure_up_to_its_bound() -> None:
    service = Scripted("outside", *[crash] * 12)
    _, clock = await supervise([service], service.serving, OUTSIDE)

    full = [min(0.5 * 2**number, 60.0) for number in range(12)]
    assert [0.75 * most <= delay <= most for delay, most in zip(clock.sleeps, full, strict=True)] == [True] * 12


async def test_a_crash_straight_after_the_start_counts_as_a_failure_in_a_row() -> None:
    service = Scripted("part", *[crash_once_up] * 5)
    with pytest.raises(ExceptionGroup) as caught:
        await supervise([service], asyncio.Event())

    assert service.starts == 5
    assert caught.group_contains(GaveUp, match="part failed 5 times in a row")


async def test_failures_are_counted_afresh_once_a_service_had_settled() -> None:
    clock = ManualClock(moves_itself=True)

    async def settle(started: Callable[[], None]) -> None:
        started()
        clock.advance(OURS.settled_after_s + 1)
        raise RuntimeError("after a good while")

    service = Scripted("part", crash, crash, crash, crash, settle, crash, crash, crash)
    await supervise([service], service.serving, clock=clock)

    assert service.starts == 9
    assert clock.sleeps[4] <= OURS.first_delay_s < clock.sleeps[3]


async def test_a_service_that_needs_the_owner_is_parked_and_not_tried_again() -> None:
    parked, calm = Scripted("parked", need_owner), Scripted("calm")
    queue, clock = await supervise([parked, calm], calm.serving)

    assert parked.starts == 1
    assert states(queue, "parked") == [("parked", "no token: run setup")]
    assert clock.sleeps == []


@covers("proc.supervised.gives-up")
async def test_giving_up_ends_every_block_around_and_closes_in_reverse() -> None:
    """A topology 29: a core part that cannot be kept up ends the whole program, which still closes as it should."""
    clock = ManualClock(moves_itself=True)
    events = Events(clock)
    journal: list[str] = []
    outer, inner = Scripted("outer", journal=journal), Scripted("inner", journal=journal)
    doomed = Scripted("doomed", *[crash] * 5)

    async def nest() -> None:
        async with asyncio.timeout(5), Supervisor([outer], OURS, events, clock):
            await outer.serving.wait()
            async with Supervisor([doomed], OURS, events, clock), Supervisor([inner], OUTSIDE, events, clock):
                await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await nest()

    assert caught.group_contains(GaveUp, match="doomed failed 5 times in a row; `fermix logs` says why")
    assert journal == ["outer opened", "inner opened", "inner closed", "outer closed"]


async def test_the_outside_world_never_takes_the_daemon_down() -> None:
    service = Scripted("outside", *[crash] * 50)
    await supervise([service], service.serving, OUTSIDE)

    assert service.starts == 51


async def test_leaving_closes_every_service_before_the_block_around_goes_on() -> None:
    clock = ManualClock()
    events = Events(clock)
    journal: list[str] = []
    outer, inner = Scripted("outer", journal=journal), Scripted("inner", journal=journal)
    async with asyncio.timeout(5), Supervisor([outer], OURS, events, clock):
        await outer.serving.wait()
        async with Supervisor([inner], OURS, events, clock):
            await inner.serving.wait()
        journal.append("between")

    assert journal == ["outer opened", "inner opened", "inner closed", "between", "outer closed"]


async def test_leaving_does_not_wait_for_the_delay_before_a_restart() -> None:
    clock = ManualClock()
    service = Scripted("part", crash)
    async with asyncio.timeout(5), Supervisor([service], OURS, Events(clock), clock):
        await clock.until_asleep()

    assert service.starts == 1


async def test_cancelling_the_owner_closes_the_services_and_stays_a_cancellation() -> None:
    clock = ManualClock()
    journal: list[str] = []
    service = Scripted("part", journal=journal)

    async def own() -> None:
        async with Supervisor([service], OURS, Events(clock), clock):
            await asyncio.Event().wait()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        owner = group.create_task(own())
        await service.serving.wait()
        owner.cancel()

    assert owner.cancelled()
    assert journal == ["part opened", "part closed"]


async def test_an_error_of_the_block_comes_out_after_the_services_are_closed() -> None:
    clock = ManualClock()
    journal: list[str] = []
    service = Scripted("part", journal=journal)

    async def own() -> None:
        async with asyncio.timeout(5), Supervisor([service], OURS, Events(clock), clock):
            await service.serving.wait()
            raise ValueError("of the block")

    with pytest.raises(ExceptionGroup) as caught:
        await own()

    assert caught.group_contains(ValueError, match="of the block")
    assert journal == ["part opened", "part closed"]
