"""Keep one connection to the daemon up, and hold what is typed while there is none. No Textual here.

The app runs `Link.run` for its whole life and is told what happens through a `Watcher`. A message keeps its
id when it is sent again after a loss, so the daemon can tell that it has it already.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fermix.clock import Clock
from fermix.errors import FermixError
from fermix.protocol.client import DaemonGone, DaemonRefused
from fermix.tui.wire import Fields

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 5.0
START_DELAY_S = 0.1  # a daemon that was just started answers soon
MAX_HELD = 1_000


class Connection(Protocol):
    """One live connection, past its hello; `protocol.client.DaemonClient` is one. Raises: DaemonGone at its end."""

    async def request(self, method: str, params: Mapping[str, object]) -> dict[str, object]: ...

    def events(self) -> AsyncIterator[tuple[str, dict[str, object]]]: ...


Connect = Callable[[], AbstractAsyncContextManager[Connection]]
StartDaemon = Callable[[], Awaitable[str]]
"""Start a daemon if none runs; what the owner should know of it, "" when there is nothing to say."""


class Watcher(Protocol):
    """Who is told. Called on the loop; must be quick."""

    async def on_up(self) -> None:
        """Connected: load what a fresh connection needs. Held messages are sent after it."""

    def on_event(self, name: str, fields: Fields) -> None: ...

    def on_down(self, reason: str) -> None:
        """Not connected; `reason` is "" while nothing is wrong yet."""

    def on_news(self, sentence: str) -> None:
        """Something the owner should read, such as that a daemon was started."""

    def on_refused(self, message_id: str, session: str, sentence: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message on its way; `id` is unique."""

    id: str
    session: str
    text: str
    cwd: Path


class Link:
    """Connect, listen, reconnect. `start_daemon` is called at most once, when nothing answers at first."""

    def __init__(self, connect: Connect, start_daemon: StartDaemon | None, watcher: Watcher, clock: Clock) -> None:
        self._connect = connect
        self._start_daemon = start_daemon
        self._watcher = watcher
        self._clock = clock
        self._connection: Connection | None = None
        self._outbox: dict[str, Outgoing] = {}
        self._work = asyncio.Event()

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def send(self, message: Outgoing) -> bool:
        """Hold a message until the daemon has it. False when too many are held already."""
        if len(self._outbox) >= MAX_HELD:
            return False
        self._outbox[message.id] = message
        self._work.set()
        return True

    async def request(self, method: str, params: Mapping[str, object]) -> dict[str, object]:
        """Ask the daemon now. Raises: DaemonGone when there is no connection, DaemonRefused."""
        if self._connection is None:
            raise DaemonGone("the daemon is not connected")
        return await self._connection.request(method, params)

    async def run(self) -> None:
        """Stay connected until cancelled."""
        failures = 0
        while True:
            try:
                async with self._connect() as connection:
                    failures = 0
                    await self._serve(connection)
                self._watcher.on_down("the connection to the daemon was lost")
            except (FermixError, OSError) as error:
                self._watcher.on_down("" if self._start_daemon else _sentence(error))  # one is started now
            failures += 1
            await self._clock.sleep(await self._before_retry(failures))

    async def _before_retry(self, failures: int) -> float:
        """Start a daemon if that is ours to do; the seconds to wait before the next try."""
        start, self._start_daemon = self._start_daemon, None
        if start is None:
            return min(FIRST_DELAY_S * 2.0 ** min(failures - 1, 10), LONGEST_DELAY_S)
        try:
            if news := await start():
                self._watcher.on_news(news)
        except (FermixError, OSError) as error:
            self._watcher.on_news(_sentence(error))
        return START_DELAY_S

    async def _serve(self, connection: Connection) -> None:
        self._start_daemon = None  # one answers: should it go away, that was somebody's wish
        try:
            await connection.request("events.subscribe", {"sessions": None, "services": True})
            self._connection = connection
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen(connection))
                await self._watcher.on_up()
                group.create_task(self._deliver(connection))
        except* DaemonGone:
            pass  # one task or both noticed; that is how a connection ends
        finally:
            self._connection = None

    async def _listen(self, connection: Connection) -> None:
        async for name, fields in connection.events():
            self._watcher.on_event(name, fields)
            await asyncio.sleep(0)  # a flood of events must not keep keys waiting
        raise DaemonGone("the daemon closed the connection")

    async def _deliver(self, connection: Connection) -> None:
        while True:
            while self._outbox:
                await self._deliver_one(connection, next(iter(self._outbox.values())))
            self._work.clear()
            await self._work.wait()

    async def _deliver_one(self, connection: Connection, message: Outgoing) -> None:
        params = {"id": message.id, "session": message.session, "text": message.text, "cwd": str(message.cwd)}
        try:
            await connection.request("message.send", params)
        except DaemonGone:
            raise
        except FermixError as error:  # refused or too long: it will not get better by sending it again
            self._watcher.on_refused(message.id, message.session, _sentence(error))
        self._outbox.pop(message.id, None)


def _sentence(error: FermixError | OSError) -> str:
    if isinstance(error, DaemonRefused):
        return f"The daemon refused: {error}"
    if isinstance(error, FermixError):
        return error.user_text or str(error)
    return error.strerror or str(error)
