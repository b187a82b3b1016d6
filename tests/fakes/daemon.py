"""A daemon that speaks the protocol in process: what it was asked is kept, events are pushed by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fermix.protocol.client import NO_DAEMON, DaemonGone, DaemonRefused
from fermix.protocol.methods import METHODS, Code

READY: dict[str, object] = {
    "overall": "ready",
    "version": "0.1.0",
    "pid": 4711,
    "uptime_s": 1.0,
    "home": "/home/owner/.fermix",
    "http": "127.0.0.1:4030",
    "model": "openai/gpt-5.5",
    "providers": [{"provider": "openai", "model": "gpt-5.5", "primary": True, "key_from": "auth.json", "usable": True}],
    "local_model": {
        "state": "absent",
        "name": "qwen2.5-coder-0.5b-instruct",
        "total_bytes": 491_400_064,
        "done_bytes": 0,
        "detail": "",
    },
    "services": [],
    "channels": [],
    "environment": [],
    "turns_running": 0,
    "memory_bytes": 48_000_000,
    "open_files": 31,
    "commands": {"told": "confined", "form": "view", "offline": True, "landlock": 7, "missing": []},
    "turns_waiting": 0,
    "failures": [],
}


class FakeDaemon:
    """Set `up` to False and it refuses new connections; `drop()` ends the live one."""

    def __init__(self, *, up: bool = True, status: Mapping[str, object] = READY) -> None:
        self.up = up
        self.status = dict(status)
        self.requests: list[tuple[str, Mapping[str, object]]] = []
        self.histories: dict[str, list[Mapping[str, object]]] = {}
        self.conversations: list[Mapping[str, object]] = []
        self.refuses: dict[str, str] = {}
        self.connections = 0
        self._queue: asyncio.Queue[tuple[str, dict[str, object]] | None] = asyncio.Queue()
        self._asked = asyncio.Condition()

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[FakeConnection]:
        if not self.up:
            raise DaemonGone("no daemon answers at /home/owner/.fermix/run/fermix.sock", user_text=NO_DAEMON)
        self.connections += 1
        self._queue = asyncio.Queue()
        yield FakeConnection(self, self._queue)

    def emit(self, event: str, /, **fields: object) -> None:
        self._queue.put_nowait((event, fields))

    def drop(self) -> None:
        self._queue.put_nowait(None)

    def sent(self, method: str) -> list[Mapping[str, object]]:
        return [params for name, params in self.requests if name == method]

    async def wait_for(self, method: str, count: int = 1) -> Mapping[str, object]:
        """The last request of a method once there are `count`; at most 5 s."""
        async with asyncio.timeout(5), self._asked:
            await self._asked.wait_for(lambda: len(self.sent(method)) >= count)
        return self.sent(method)[count - 1]

    async def take(self, method: str, params: Mapping[str, object]) -> dict[str, object]:
        if method not in METHODS:
            raise DaemonRefused(Code.METHOD_NOT_FOUND, f"unknown method {method}")
        async with self._asked:
            self.requests.append((method, params))
            self._asked.notify_all()
        if method in self.refuses:
            raise DaemonRefused(Code.REFUSED, self.refuses[method])
        return self._answer(method, params)

    def _answer(self, method: str, params: Mapping[str, object]) -> dict[str, object]:
        match method:
            case "status":
                return dict(self.status)
            case "conversation.history":
                return {"entries": list(self.histories.get(str(params["session"]), []))}
            case "conversation.list":
                return {"conversations": list(self.conversations)}
            case "turn.stop":
                return {"stopped": 1, "dropped": 0}
            case _:
                return {}


class FakeConnection:
    def __init__(self, daemon: FakeDaemon, queue: asyncio.Queue[tuple[str, dict[str, object]] | None]) -> None:
        self._daemon = daemon
        self._queue = queue

    async def request(self, method: str, params: Mapping[str, object]) -> dict[str, object]:
        return await self._daemon.take(method, params)

    async def events(self) -> AsyncIterator[tuple[str, dict[str, object]]]:
        while (event := await self._queue.get()) is not None:
            yield event
        raise DaemonGone("the daemon closed the connection")
