"""The one writer of conversation rows: what is put in is written in that order, in the background.

`Conversations` owns it and a supervisor runs it. A turn never waits for it. Three tries, then a batch is given
up: it stays in memory for the life of the process, the log says so, and `history` goes down for whoever watches.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from fermix.agent.memory.rows import Columns
from fermix.clock import Clock
from fermix.errors import FermixError, LimitReached
from fermix.events import Events, ServiceState
from fermix.home import AGENT_ID
from fermix.message import ConversationKey
from fermix.store import Connection, Database, SqlValue

log = logging.getLogger(__name__)

OWNER_ID = "default"
TRIES = 3  # Architecture, persistence layout
FIRST_DELAY_S = 0.1  # doubled between tries
BATCH_ROWS = 200
MOST_WAITING = 20_000  # only a disk that neither answers nor fails lets so many gather
FLUSH_S = 5.0

INSERT = (
    "INSERT INTO messages (agent_id, owner_id, channel, chat_id, thread_scope, session,"
    " sender, role, kind, content, metadata_json, created_at, ledger_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


class Line(NamedTuple):
    """One row and the conversation it belongs to."""

    key: ConversationKey
    session: int
    columns: Columns


class HistoryWriter:
    """A service. `put` and `holds` are for its owner, on the loop's thread; `written` is called after each batch."""

    name = "history"

    def __init__(self, database: Database, clock: Clock, events: Events) -> None:
        self._database = database
        self._clock = clock
        self._events = events
        self._waiting: deque[Line] = deque()
        self._unwritten: Counter[ConversationKey] = Counter()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._failing = False
        self.written: Callable[[], None] = _nobody_waits

    def put(self, line: Line) -> None:
        """Take a row; it is written soon and after those that came before."""
        if len(self._waiting) >= MOST_WAITING:
            log.error("history row not written, %d already wait: %s", MOST_WAITING, line.key.channel)
            return
        self._waiting.append(line)
        self._unwritten[line.key] += 1
        self._idle.clear()
        self._arrived.set()

    def holds(self, key: ConversationKey) -> bool:
        """Tell whether rows of this conversation are not on disk yet."""
        return key in self._unwritten

    async def flush(self) -> None:
        """Wait until every row is written or given up. Raises: LimitReached after five seconds."""
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._idle.wait()
        except TimeoutError as error:
            raise LimitReached(
                f"{self._unwritten.total()} history rows are not on disk yet", limit="seconds"
            ) from error

    async def run(self, started: Callable[[], None]) -> None:
        started()
        while True:
            while self._waiting:
                await self._write(self._next_batch())
            self._idle.set()
            await self._arrived.wait()
            self._arrived.clear()

    def _next_batch(self) -> list[Line]:
        return [self._waiting.popleft() for _ in range(min(BATCH_ROWS, len(self._waiting)))]

    async def _write(self, batch: Sequence[Line]) -> None:
        try:
            await self._try(batch)
        finally:
            self._unwritten -= Counter(line.key for line in batch)

    async def _try(self, batch: Sequence[Line]) -> None:
        def insert(connection: Connection) -> None:
            connection.executemany(INSERT, [_parameters(line) for line in batch])

        for tried in range(1, TRIES + 1):
            try:
                await self._database.run(insert)
            except FermixError as error:
                if tried == TRIES:
                    self._give_up(batch, error)
                    return
                await self._clock.sleep(FIRST_DELAY_S * 2 ** (tried - 1))
            else:
                self._recover()
                self.written()
                return

    def _give_up(self, batch: Sequence[Line], error: FermixError) -> None:
        log.error("%d history rows are kept in memory only: %s", len(batch), error)
        self._failing = True
        self._events.emit(ServiceState(self.name, "down", str(error)))

    def _recover(self) -> None:
        if self._failing:
            self._failing = False
            self._events.emit(ServiceState(self.name, "up"))


def _nobody_waits() -> None:
    """What `written` is until somebody wants to know."""


def _parameters(line: Line) -> tuple[SqlValue, ...]:
    return (AGENT_ID, OWNER_ID, *line.key, line.session, *line.columns)
