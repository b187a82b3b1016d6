"""The one thread that writes. `Database` hands it transactions; nothing else knows it.

Transactions that come or wait together share one commit, each behind its own savepoint: a failing one undoes itself
and no other, and nobody gets a result before the commit that makes it true.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from fermix.store import schema
from fermix.store.faults import explain

MOST_IN_ONE_COMMIT = 64  # no more is added to so many; bounds how long the first of a batch waits for the last


@dataclass(slots=True)
class Job:
    """One transaction on its way. `result` or `error` is set by the thread, `done` is resolved on the loop."""

    fn: Callable[[sqlite3.Connection], object]
    durable: bool
    done: asyncio.Future[object]
    result: object = None
    error: Exception | None = None


class Writer:
    """The thread and its queue. `opened` resolves to whether the content was checked, once the file is ready;
    `closed` resolves when the file is closed again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[Sequence[Job]] = SimpleQueue()
        self._synchronous = "NORMAL"
        self.opened: asyncio.Future[object] = self._loop.create_future()
        self.closed: asyncio.Future[object] = self._loop.create_future()
        threading.Thread(target=self._live, name="database").start()

    def put(self, jobs: Sequence[Job]) -> None:
        """Queue transactions that go together; they run after those that came before."""
        for start in range(0, len(jobs), MOST_IN_ONE_COMMIT):
            self._jobs.put(jobs[start : start + MOST_IN_ONE_COMMIT])

    def stop(self) -> None:
        """Let the thread do what is queued, then close the file and end."""
        self._jobs.put(())

    def _live(self) -> None:
        opening = Job(_nothing, False, self.opened)
        closing = Job(_nothing, False, self.closed)
        try:
            connection, opening.result = schema.connect(self._path)
        except Exception as error:  # noqa: BLE001 - carried over to who opens
            opening.error = error
            self._deliver([opening, closing])
            return
        self._deliver([opening])
        try:
            while batch := self._next_batch():
                self._commit(connection, batch)
                self._deliver(batch)
        finally:
            connection.close()
            self._deliver([closing])

    def _next_batch(self) -> list[Job]:
        """Wait for work, then take what else is there; empty means stop."""
        batch: list[Job] = []
        while jobs := self._jobs.get():
            batch.extend(jobs)
            if len(batch) >= MOST_IN_ONE_COMMIT or self._jobs.empty():
                return batch
        if batch:
            self.stop()  # the stop is the last word; it comes again after this batch
        return batch

    def _commit(self, connection: sqlite3.Connection, batch: Sequence[Job]) -> None:
        try:
            self._choose_synchronous(connection, durable=any(job.durable for job in batch))
            connection.execute("BEGIN IMMEDIATE")
            for job in batch:
                _run(connection, job)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            with suppress(sqlite3.Error):  # a transaction that cannot be rolled back is already gone
                connection.rollback()
            for job in batch:
                job.error = job.error or error

    def _choose_synchronous(self, connection: sqlite3.Connection, *, durable: bool) -> None:
        wanted = "FULL" if durable else "NORMAL"
        if wanted != self._synchronous:
            connection.execute(f"PRAGMA synchronous = {wanted}")
            self._synchronous = wanted

    def _deliver(self, jobs: Sequence[Job]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more, and what was committed stays
            self._loop.call_soon_threadsafe(_resolve, jobs, self._path)


def _nothing(_: sqlite3.Connection) -> None:
    """Opening and closing are delivered like jobs, but run no transaction."""


def _run(connection: sqlite3.Connection, job: Job) -> None:
    """Run one job behind its savepoint. Raises: sqlite3.Error when the whole transaction is gone."""
    connection.execute("SAVEPOINT job")
    try:
        job.result = job.fn(connection)
    except Exception as error:  # carried over to the caller of this job
        job.error = error
        if isinstance(error, sqlite3.Error) and not connection.in_transaction:
            raise  # SQLite rolled everything back by itself, as it does on a full disk
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


def _resolve(jobs: Sequence[Job], path: Path) -> None:
    """Hand the results over, on the loop's thread. A caller that was cancelled gets nothing."""
    for job in jobs:
        if job.done.done():
            continue
        if job.error is None:
            job.done.set_result(job.result)
            continue
        meant = explain(job.error, path) if isinstance(job.error, sqlite3.Error) else None
        if meant is not None:
            meant.__cause__ = job.error
        job.done.set_exception(meant or job.error)
