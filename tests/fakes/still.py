"""A world in one thread, in which the same steps always give the same run.

Time is the loop's and moves only when nothing else can happen: to sleep for a moment is to wait until all is quiet.
The database file is real; its writer works on the loop, can be told to fail, and can die with what it had not written.
"""

from __future__ import annotations

import asyncio
import selectors
import sqlite3
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import ParamSpec, TypeVar

from fermix.store import schema
from fermix.store.writer import MOST_IN_ONE_COMMIT, Job, Writer, _resolve
from fermix.workers import Workers

P = ParamSpec("P")
T = TypeVar("T")

START = datetime(2026, 1, 1, tzinfo=UTC)
QUIET_S = 0.001  # nothing of ours waits for a time that is shorter


class StillLoop(asyncio.SelectorEventLoop):
    """Never waits: where another loop would, time jumps to the next timer."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        super().__init__(_Jump(self))

    def time(self) -> float:
        return self.passed_s


class _Jump(selectors.SelectSelector):
    def __init__(self, loop: StillLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everything waits for what will never come")
        self._loop.passed_s += max(timeout, 0.0)
        return []


class StillClock:
    """A `Clock` on a `StillLoop`."""

    def __init__(self, loop: StillLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        return START + timedelta(seconds=self._loop.passed_s)

    def monotonic(self) -> float:
        return self._loop.passed_s

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class StillWorkers(Workers):
    """Blocking calls are done at once, one turn of the loop later."""

    def __init__(self) -> None:
        """No thread."""

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(0)
        return fn(*args, **kwargs)

    async def hand_over(self, fn: Callable[P, T], drop: Callable[[T], None], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(fn, *args, **kwargs)

    def close(self) -> None:
        """Nothing is open."""


class StillWriter(Writer):
    """Commits as the thread does, in the next turn of the loop. `failures` is how many commits go wrong next."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._synchronous = "NORMAL"
        self._waiting: list[Job] = []
        self._gone = False
        self.failures = 0
        self.connection = schema._open(path, "mode=rw")  # what was checked when the file was made is not again
        schema._configure(self.connection, path)
        self.closed = self._loop.create_future()

    def put(self, jobs: Sequence[Job]) -> None:
        if self._gone:
            return
        if not self._waiting:
            self._loop.call_soon(self._write)
        self._waiting += jobs

    def stop(self) -> None:
        while self._waiting:
            self._write()
        self.die()

    def die(self) -> None:
        """Lose what is not written, as a killed process does."""
        self._waiting.clear()
        if not self._gone:
            self._gone = True
            self.connection.close()
            self.closed.set_result(None)

    def _write(self) -> None:
        batch, self._waiting = self._waiting[:MOST_IN_ONE_COMMIT], self._waiting[MOST_IN_ONE_COMMIT:]
        if self._waiting:
            self._loop.call_soon(self._write)
        if self.failures and batch:
            self.failures -= 1
            for job in batch:
                job.error = _full_disk()
        elif batch:
            self._commit(self.connection, batch)
        _resolve(batch, self._path)


def _full_disk() -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("database or disk is full")
    error.sqlite_errorcode = sqlite3.SQLITE_FULL
    return error
