"""The asyncio client of the daemon's socket; the terminal UI uses nothing else.

async with DaemonClient.connect(path, client="tui") as client:
    await client.request("events.subscribe", {"sessions": None, "services": True})
    async for name, params in client.events(): ...
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from fermix.errors import LimitReached, Unavailable, Unusable
from fermix.protocol.frames import LineSplitter, decode, encode
from fermix.protocol.methods import PROTOCOL

NO_DAEMON = "no daemon: type `fermix start`"  # short: it stands on a line of 40 columns
REQUEST_TIMEOUT_S = 30.0  # the daemon answers every request at once; turns report by events


class DaemonGone(Unavailable):
    """The connection ended."""


class DaemonRefused(Unavailable):
    """The daemon answered a request with an error; `user_text` is its sentence."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message, user_text=message)
        self.code = code


class DaemonClient(asyncio.Protocol):
    """One connection. Made by `connect`."""

    def __init__(self) -> None:
        self._lines = LineSplitter()
        self._answers: dict[int, asyncio.Future[dict[str, object]]] = {}
        self._events: deque[tuple[str, dict[str, object]]] = deque()
        self._news = asyncio.Event()
        self._number = 0
        self._transport: asyncio.WriteTransport | None = None
        self.welcome: dict[str, object] = {}

    @classmethod
    @asynccontextmanager
    async def connect(cls, path: Path, *, client: str) -> AsyncGenerator[DaemonClient]:
        """Connect and say hello. Raises: DaemonGone when nothing listens, DaemonRefused on another protocol."""
        loop = asyncio.get_running_loop()
        try:
            transport, connection = await loop.create_unix_connection(cls, str(path))
        except OSError as error:
            raise DaemonGone(f"no daemon answers at {path}", user_text=NO_DAEMON) from error
        try:
            connection.welcome = await connection.request("hello", {"protocol": PROTOCOL, "client": client})
            yield connection
        finally:
            transport.close()

    async def request(self, method: str, params: Mapping[str, object]) -> dict[str, object]:
        """Send one request and wait for its result. Raises: DaemonGone, DaemonRefused."""
        if self._transport is None:
            raise DaemonGone("the connection is closed")
        self._number += 1
        number = self._number
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._transport.write(encode({"jsonrpc": "2.0", "id": number, "method": method, "params": dict(params)}))
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await answer
        except TimeoutError as error:
            raise DaemonGone(f"no answer to {method} within {REQUEST_TIMEOUT_S:.0f} s") from error
        finally:
            del self._answers[number]

    async def events(self) -> AsyncIterator[tuple[str, dict[str, object]]]:
        """Yield (name, params) in order. Raises: DaemonGone at the end of the connection."""
        while True:
            while self._events:
                yield self._events.popleft()
            if self._transport is None:
                raise DaemonGone("the daemon closed the connection")
            self._news.clear()
            await self._news.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for line in self._lines.feed(data):
                self._take(decode(line))
        except (LimitReached, Unusable):
            if self._transport is not None:
                self._transport.abort()
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(DaemonGone("the daemon closed the connection"))
        self._news.set()

    def _take(self, message: dict[str, object]) -> None:
        params = message.get("params")
        if "method" in message and isinstance(params, dict):
            self._events.append((str(message["method"]), params))  # pyright: ignore[reportUnknownArgumentType] - JSON
            return
        number = message.get("id")
        answer = self._answers.get(number) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        error, result = message.get("error"), message.get("result")
        if isinstance(error, dict):
            answer.set_exception(DaemonRefused(int(error.get("code", 0)), str(error.get("message", ""))))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - JSON
        else:
            answer.set_result(result if isinstance(result, dict) else {})  # pyright: ignore[reportUnknownArgumentType] - JSON
