from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import pytest

from fermix.workers import MAX_THREADS, Workers


@pytest.fixture
def workers() -> Generator[Workers]:
    workers = Workers()
    yield workers
    workers.close()


def _divide(dividend: int, *, by: int) -> float:
    return dividend / by


async def test_a_function_runs_in_another_thread_with_its_arguments(workers: Workers) -> None:
    assert await workers.run(_divide, 6, by=3) == 2.0
    assert await workers.run(threading.get_ident) != threading.get_ident()


async def test_what_the_function_raises_reaches_the_caller(workers: Workers) -> None:
    with pytest.raises(ZeroDivisionError):
        await workers.run(_divide, 6, by=0)


async def test_the_loop_goes_on_while_a_thread_blocks(workers: Workers) -> None:
    release = threading.Event()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        blocked = group.create_task(workers.run(release.wait, 5))
        assert await workers.run(_divide, 1, by=1) == 1.0
        assert not blocked.done()
        release.set()

    assert blocked.result() is True


async def test_no_more_threads_run_than_the_bound(workers: Workers) -> None:
    release, begun = threading.Event(), threading.Semaphore(0)
    running = 0

    def block() -> None:
        nonlocal running
        running += 1
        begun.release()
        assert release.wait(5)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for _ in range(MAX_THREADS + 3):
            group.create_task(workers.run(block))
        await asyncio.sleep(0)
        for _ in range(MAX_THREADS):
            assert begun.acquire(timeout=5)
        at_once = running
        release.set()

    assert at_once == MAX_THREADS
    assert running == MAX_THREADS + 3


async def test_closing_starts_nothing_that_waits_and_waits_for_nothing() -> None:
    workers = Workers(max_threads=1)
    release, begun = threading.Event(), threading.Event()
    ran: list[str] = []

    def block() -> None:
        begun.set()
        assert release.wait(5)
        ran.append("first")

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        first = group.create_task(workers.run(block))
        waiting = group.create_task(workers.run(ran.append, "second"))
        await asyncio.sleep(0)
        assert begun.wait(5)
        workers.close()
        release.set()

    assert first.done()
    assert waiting.cancelled()
    assert ran == ["first"]


async def test_a_caller_that_is_cancelled_leaves_the_thread_to_its_end(workers: Workers) -> None:
    release, begun, ended = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        begun.set()
        assert release.wait(5)
        ended.set()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        caller = group.create_task(workers.run(block))
        await asyncio.sleep(0)
        assert begun.wait(5)
        caller.cancel()
    assert caller.cancelled()
    release.set()

    assert ended.wait(5)


async def test_what_comes_for_a_caller_that_has_gone_is_dropped(workers: Workers) -> None:
    release, begun, dropped = threading.Event(), threading.Event(), threading.Event()

    def open_something() -> str:
        begun.set()
        assert release.wait(5)
        return "open"

    def drop(found: str) -> None:
        assert found == "open"
        dropped.set()

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        caller = group.create_task(workers.hand_over(open_something, drop))
        await asyncio.sleep(0)
        assert begun.wait(5)
        caller.cancel()
    release.set()

    assert dropped.wait(5)


async def test_what_comes_in_time_is_not_dropped(workers: Workers) -> None:
    dropped: list[float] = []

    assert await workers.hand_over(_divide, dropped.append, 6, by=3) == 2
    assert not dropped
