from __future__ import annotations

import asyncio

from fermix.events import Events, ServiceState, preview
from tests.fakes.clock import START, ManualClock


def state(number: int) -> ServiceState:
    return ServiceState(str(number), "up")


async def test_every_subscriber_gets_every_event_in_order_with_time_and_number() -> None:
    events = Events(ManualClock())
    with events.subscribe(10) as first, events.subscribe(10) as second:
        events.emit(state(1))
        events.emit(state(2))

        taken = first.drain()
        assert [(item.number, item.event, item.at) for item in taken] == [(1, state(1), START), (2, state(2), START)]
        assert second.drain() == taken


async def test_an_event_without_listeners_is_gone_but_counted() -> None:
    events = Events(ManualClock())
    events.emit(state(1))
    with events.subscribe(10) as queue:
        events.emit(state(2))

        assert [item.number for item in queue.drain()] == [2]


async def test_a_slow_subscriber_loses_its_oldest_and_nobody_elses() -> None:
    events = Events(ManualClock())
    with events.subscribe(2) as slow, events.subscribe(10) as quick:
        for number in range(5):
            events.emit(state(number))

        assert (slow.dropped, quick.dropped) == (3, 0)
        assert [item.event for item in slow.drain()] == [state(3), state(4)]
        assert len(quick.drain()) == 5


async def test_waiting_ends_with_the_next_event() -> None:
    events = Events(ManualClock())
    with events.subscribe(10) as queue:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            waiting = group.create_task(queue.get())
            await asyncio.sleep(0)
            assert not waiting.done()
            events.emit(state(1))

        assert waiting.result().event == state(1)


async def test_a_wait_that_is_cancelled_loses_no_event() -> None:
    events = Events(ManualClock())
    with events.subscribe(10) as queue:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            waiting = group.create_task(queue.get())
            await asyncio.sleep(0)
            waiting.cancel()
            events.emit(state(1))

        assert [item.event for item in queue.drain()] == [state(1)]


async def test_nothing_is_kept_for_who_has_left() -> None:
    events = Events(ManualClock())
    with events.subscribe(10) as queue:
        pass
    events.emit(state(1))

    assert queue.drain() == []


def test_a_preview_says_how_much_is_missing() -> None:
    assert preview("short") == "short"
    assert preview("x" * 12, limit=10) == "x" * 10 + "… (+2 characters)"
