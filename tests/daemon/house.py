"""The daemon's front rooms in process: the real socket, gateway, conversations and audience; the agent is a fake."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fermix.agent.approvals import Approvals
from fermix.agent.budget import Budget
from fermix.agent.memory import Conversations
from fermix.agent.memory.facts import Facts
from fermix.agent.memory.search import Search
from fermix.channels.catalog import LOCAL
from fermix.channels.local import LocalChannel
from fermix.daemon import answers
from fermix.daemon.answers import Answers
from fermix.daemon.audience import Audience
from fermix.daemon.health import HealthBoard
from fermix.daemon.socket import SocketServer
from fermix.events import Events
from fermix.gateway import Authorizer, Gateway, Ledger, Rooms
from fermix.gateway.commands.catalog import COMMANDS
from fermix.home import Home
from fermix.native.private import Used
from fermix.protocol.methods import (
    PROTOCOL,
    ChannelRow,
    Channels,
    CommandWalls,
    DeniedRow,
    LocalRow,
    ProviderRow,
    Reloaded,
)
from fermix.store import Database
from fermix.workers import Workers
from tests.fakes.channel import FakeAgent
from tests.fakes.clock import ManualClock
from tests.fakes.policy import policy_in
from tests.fakes.transcriber import media_step

WAIT_S = 5
WALLS: CommandWalls = {"told": "confined", "form": "view", "offline": True, "landlock": 7, "missing": []}
NOBODY = "nobody can answer: run `fermix setup`"


@dataclass
class FakeModels:
    current: str | None = "fake/model"

    def missing(self) -> list[str]:
        return [] if self.current else [NOBODY]

    def rows(self) -> list[ProviderRow]:
        row: ProviderRow = {
            "provider": "fake",
            "model": "model",
            "primary": True,
            "key_from": "auth.json",
            "usable": True,
            "problem": "",
        }
        return [row]

    def local(self) -> LocalRow:
        return {"state": "absent", "name": "small", "total_bytes": 9, "done_bytes": 0, "detail": "", "primary": False}


@dataclass
class FakeControl:
    asked: list[str] = field(default_factory=list)

    def channels(self) -> Channels:
        row: ChannelRow = {"channel": "telegram", "enabled": True, "owner": "1", "guests": 2, "problem": ""}
        denied: DeniedRow = {
            "channel": "telegram",
            "sender": "9",
            "name": "Eve",
            "at": "2026-11-30T00:00:00+00:00",
            "times": 1,
        }
        return {"channels": [row], "denied": [denied]}

    async def reload(self) -> Reloaded:
        self.asked.append("reload")
        return {"model": "fake/model", "restart_required": []}

    def fetch_model(self) -> None:
        self.asked.append("fetch")

    def stop(self) -> None:
        self.asked.append("stop")

    def http_address(self) -> str:
        return "127.0.0.1:1"

    async def commands(self) -> CommandWalls:
        return WALLS

    async def used(self) -> Used:
        return Used(48_200_000, 31)

    def environment(self) -> list[str]:
        return ["OPENAI_API_KEY"]


@dataclass
class House:
    home: Home
    events: Events
    agent: FakeAgent
    gateway: Gateway
    audience: Audience
    control: FakeControl
    conversations: Conversations
    approvals: Approvals
    facts: Facts
    dialled: list[Dial] = field(default_factory=list)

    async def dial(self, *, hello: bool = True) -> Dial:
        """Connect; with `hello`, say it."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        await asyncio.get_running_loop().sock_connect(sock, str(self.home.daemon_socket))
        dial = Dial(sock)
        self.dialled.append(dial)
        if hello:
            await dial.request("hello", {"protocol": PROTOCOL, "client": "test"})
        return dial


class Dial:
    """A client of the socket that sends what it is told, right or wrong. `news` holds every event that came."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.news: list[dict[str, Any]] = []
        self._passed = 0
        self._buffer = b""
        self._number = 0

    async def request(
        self, method: str, params: Mapping[str, object] | None = None, *, files: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Send a request; its whole answer."""
        self._number += 1
        line = json.dumps({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}}).encode()
        await self.send(line + b"\n", files=files)
        return await self.answer(self._number)

    async def ask(self, text: str, *, id: str = "m1", session: str = "cli", **more: object) -> dict[str, Any]:
        return await self.request("message.send", {"id": id, "session": session, "text": text, **more})

    async def subscribe(self, sessions: list[str] | None = None, *, services: bool = False) -> None:
        assert await self.request("events.subscribe", {"sessions": sessions, "services": services})

    async def send(self, data: bytes, *, files: Sequence[int] = ()) -> None:
        async with asyncio.timeout(WAIT_S):
            if files:
                sent = socket.send_fds(self.sock, [data], list(files))
                data = data[sent:]
            await asyncio.get_running_loop().sock_sendall(self.sock, data)

    async def answer(self, number: object) -> dict[str, Any]:
        while True:
            message = await self.read()
            assert message is not None, "the daemon hung up"
            if "method" not in message and message["id"] == number:
                return message
            self.news.append(message)

    async def next(self, event: str) -> dict[str, Any]:
        """The params of the next event of this name, behind the last one that this gave."""
        while True:
            if self._passed == len(self.news):
                message = await self.read()
                assert message is not None, "the daemon hung up"
                self.news.append(message)
            message = self.news[self._passed]
            self._passed += 1
            if message.get("method") == event:
                params: dict[str, Any] = message["params"]
                return params

    async def read(self) -> dict[str, Any] | None:
        """One message; None when the daemon hung up."""
        async with asyncio.timeout(WAIT_S):
            while b"\n" not in self._buffer:
                try:
                    data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 20)
                except ConnectionResetError:
                    return None
                if not data:
                    return None
                self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    async def hung_up(self) -> bool:
        """Read to the end."""
        while (message := await self.read()) is not None:
            self.news.append(message)
        return True

    def close(self) -> None:
        self.sock.close()


@asynccontextmanager
async def opened(root: Path, *, wrap: Callable[[Answers], Any] | None = None) -> AsyncGenerator[House]:
    """Open everything, serve, close in reverse."""
    home, clock = Home(root), ManualClock()
    home.prepare()
    async with AsyncExitStack() as stack:
        events = Events(clock)
        workers = Workers()
        stack.callback(workers.close)
        database = await stack.enter_async_context(Database.open(home.database))
        conversations = await stack.enter_async_context(Conversations.open(database, clock, events))
        audience = Audience(stack.enter_context(events.subscribe(10_000)))
        health = HealthBoard(home, clock, stack.enter_context(events.subscribe(10_000)))
        models, control, agent = FakeModels(), FakeControl(), FakeAgent()
        health.watch_models(models)
        ledger, authorizer, approvals = Ledger(database, clock), Authorizer(LOCAL), Approvals(clock)
        budget = Budget(database, clock)
        facts = Facts(database, home, workers, clock)
        policy = stack.enter_context(policy_in(root, clock))
        gateway = await stack.enter_async_context(
            Gateway.open(
                Rooms(
                    agent,
                    authorizer,
                    ledger,
                    conversations,
                    policy,
                    approvals,
                    COMMANDS,
                    events,
                    clock,
                    media_step(),
                    budget,
                )
            )
        )
        rooms = answers.Rooms(
            home,
            clock,
            gateway,
            LocalChannel(audience),
            conversations,
            audience,
            health,
            models,
            workers,
            control,
            policy,
            facts,
            budget,
            Search.following(conversations, database, workers, clock),
        )
        methods = Answers(rooms)
        server = SocketServer(home.daemon_socket, wrap(methods) if wrap else methods, audience)
        await stack.enter_async_context(running(audience.run))
        await stack.enter_async_context(running(server.run))
        house = House(home, events, agent, gateway, audience, control, conversations, approvals, facts)
        yield house
        for dial in house.dialled:
            dial.close()


@asynccontextmanager
async def running(run: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> AsyncGenerator[None]:
    """Run a service from its start to the end of the block."""
    started = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run(started.set))
        async with asyncio.timeout(WAIT_S):
            await started.wait()
        yield
        task.cancel()
