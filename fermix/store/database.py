"""The asynchronous face of the one SQLite file. Every room that keeps something durable goes through it.

Writes: `run` hands a plain function to the one writer thread, which wraps it in a transaction; one hop there and
back. What is written in one round of the loop goes together and shares a commit. Reads: `read` goes through aiosqlite
on a read-only connection, opened when first needed, and sees all that was committed before. The daemon holds the
home's lock, so one process writes; others may read.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, cast

import aiosqlite

from fermix.errors import Unavailable
from fermix.store.faults import Damaged, explain
from fermix.store.schema import BUSY_TIMEOUT_S, QUICK_CHECK, check_content, reading_address
from fermix.store.writer import Job, Writer

log = logging.getLogger(__name__)

T = TypeVar("T")
Connection = sqlite3.Connection
SqlValue = None | int | float | str | bytes

COMPANY_S = 0.001  # what nobody waits for goes with a write that somebody does, when one comes at once
CLOSING_S = 5.0  # half of what a stopping daemon has


class Database:
    """Made by `open`, once per process and file; used from the loop's thread only."""

    def __init__(self, path: Path, writer: Writer, *, checked: bool) -> None:
        self._path = path
        self._writer = writer
        self._checked = checked
        self._reader: aiosqlite.Connection | None = None
        self._opening_reader = asyncio.Lock()
        self._gathered: list[Job] = []
        self._closed = False
        self._damage: asyncio.Future[Damaged] = asyncio.get_running_loop().create_future()

    @classmethod
    @asynccontextmanager
    async def open(cls, path: Path) -> AsyncGenerator[Database]:
        """Open the file, migrate it, close it on every way out after what was queued is committed.

        Raises: NeedsOperator when the file is damaged, newer than this program, changed by hand or not writable.
        """
        writer = Writer(path)
        try:
            database = cls(path, writer, checked=await writer.opened is True)
            try:
                yield database
            finally:
                await database._close()
        finally:
            writer.stop()
            _, late = await asyncio.wait([writer.closed], timeout=CLOSING_S)
            if late:
                log.warning("the database still writes: %s", path)

    async def run(self, fn: Callable[[Connection], T], *, durable: bool = False) -> T:
        """Run `fn` as one transaction and return its result once that is committed.

        `fn` runs on the writer thread, is short, does nothing but SQL and never commits by itself. A committed
        transaction survives the death of this process; a `durable` one also a power cut, for one fsync more.
        A cancelled caller stops waiting, the transaction still happens. Raises: what `fn` raises;
        NeedsOperator on a full or read-only disk; Unavailable when another program holds the file.
        """
        if self._closed:
            raise Unavailable("the database is closed")
        job = Job(fn, durable, asyncio.get_running_loop().create_future())
        self._gathered.append(job)
        asyncio.get_running_loop().call_soon(self._hand_over)
        try:
            return cast("T", await job.done)  # what `fn` returned, which the queue of mixed jobs cannot type
        except Damaged as error:
            self._found(error)
            raise

    def post(self, fn: Callable[[Connection], None]) -> None:
        """Queue `fn` like `run`, behind all that came before, and wait for nothing. A failure is logged: this is for
        what can be found out again when it is missing.
        """
        if self._closed:
            log.error("not written, the database is closed")
            return
        job = Job(fn, False, asyncio.get_running_loop().create_future())
        job.done.add_done_callback(self._tell_failure)
        if not self._gathered:
            asyncio.get_running_loop().call_later(COMPANY_S, self._hand_over)
        self._gathered.append(job)

    async def read(self, sql: str, parameters: Sequence[SqlValue] = ()) -> list[tuple[SqlValue, ...]]:
        """Run one query. Raises: NeedsOperator when the file is damaged, Unavailable when it is held or closed."""
        try:
            rows = await (await self._reading()).execute_fetchall(sql, parameters)
        except sqlite3.Error as error:
            meant = explain(error, self._path)
            if isinstance(meant, Damaged):
                self._found(meant)
            raise meant or error from error
        return [tuple(row) for row in rows]

    async def check(self) -> None:
        """Check the content of the whole file, unless opening it already did. Slow: for a background service.

        Raises: NeedsOperator when it is damaged.
        """
        if self._checked:
            return
        try:
            async with self._connect() as connection:
                rows = await connection.execute_fetchall(QUICK_CHECK)
        except sqlite3.Error as error:
            raise explain(error, self._path) or error from error
        for row in rows:
            check_content(tuple(row), self._path)
        self._checked = True

    async def damage(self) -> Damaged:
        """Wait until a read or a write finds the file damaged, and return what was found."""
        return await asyncio.shield(self._damage)

    def _found(self, damage: Damaged) -> None:
        if not self._damage.done():
            self._damage.set_result(damage)

    def _tell_failure(self, done: asyncio.Future[object]) -> None:
        if done.cancelled() or (error := done.exception()) is None:
            return
        log.error("not written: %s", error)
        if isinstance(error, Damaged):
            self._found(error)

    def _hand_over(self) -> None:
        if self._gathered:
            self._writer.put(self._gathered)
            self._gathered = []

    def _connect(self) -> aiosqlite.Connection:
        return aiosqlite.connect(reading_address(self._path), uri=True, timeout=BUSY_TIMEOUT_S)

    async def _reading(self) -> aiosqlite.Connection:
        async with self._opening_reader:
            if self._closed:
                raise Unavailable("the database is closed")
            if self._reader is None:
                self._reader = await self._connect()
            return self._reader

    async def _close(self) -> None:
        """Close the reader before the writer: whoever closes last tidies up, and a reader cannot."""
        self._closed = True
        self._hand_over()
        if self._reader is not None:
            await self._reader.close()
