"""A gateway on a real database file that can be left and opened again, as after a restart."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fermix.agent.approvals import Approvals
from fermix.agent.budget import Budget
from fermix.events import EventQueue, Events, MessageSettled
from fermix.gateway import Access, Authorizer, Gateway, Ledger, Rooms
from fermix.gateway.commands.catalog import COMMANDS
from fermix.gateway.media import MediaStep
from fermix.message import ConversationKey
from fermix.store import Database
from tests.fakes.channel import FakeAgent, FakeChannel, message
from tests.fakes.clock import ManualClock
from tests.fakes.platform import Platform
from tests.fakes.policy import policy_in
from tests.fakes.transcriber import media_step

ALBUM_QUIET_S = 3.0
ACCESS = {
    "cli": Access(local=True),
    "chat": Access(local=False, owner="1", listed=frozenset({"2", "4"}), commanders=frozenset({"4"})),
}


@dataclass
class Conversations:
    """What the gateway does to histories, remembered."""

    cleared: list[ConversationKey] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)

    async def clear(self, key: ConversationKey) -> None:
        self.cleared.append(key)

    def expect(self, ledger_ids: Iterable[int]) -> None:
        self.expected = list(ledger_ids)


@dataclass
class Open:
    """One life of the daemon's gateway."""

    gateway: Gateway
    channel: FakeChannel
    agent: FakeAgent
    ledger: Ledger
    database: Database
    conversations: Conversations
    news: EventQueue

    async def say(self, text: str, id: str = "m1", chat: str = "chat", sender: str = "1") -> None:
        await self.gateway.ingest(message(text, id=id, chat=chat, channel="chat", sender=sender), self.channel)

    async def settled(self, count: int) -> list[tuple[str, str]]:
        """The next messages that got their last word, with their outcomes."""
        found: list[tuple[str, str]] = []
        async with asyncio.timeout(5):
            while len(found) < count:
                event = (await self.news.get()).event
                if isinstance(event, MessageSettled):
                    found.append((event.message_id, event.outcome))
        return found


class Install:
    """The disk and the platform, which outlive the daemon."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock(moves_itself=True)
        self.access = ACCESS
        self.platform = Platform(clock=self.clock)

    @asynccontextmanager
    async def ledger(self) -> AsyncGenerator[Ledger]:
        """The ledger alone, to leave rows behind as a killed daemon would."""
        async with asyncio.timeout(10), Database.open(self.path) as database:
            yield Ledger(database, self.clock)

    @asynccontextmanager
    async def start(
        self,
        agent: FakeAgent | None = None,
        channel: FakeChannel | None = None,
        media: MediaStep | None = None,
        bound_s: float = 30,
    ) -> AsyncGenerator[Open]:
        agent, conversations, events = agent or FakeAgent(), Conversations(), Events(self.clock)
        channel = channel or FakeChannel("chat", platform=self.platform, can=())
        async with asyncio.timeout(bound_s), Database.open(self.path) as database:
            ledger = Ledger(database, self.clock)
            with events.subscribe(100_000) as news, policy_in(self.path.parent, self.clock) as policy:
                approvals = Approvals(self.clock)
                rooms = Rooms(
                    agent,
                    Authorizer(self.access),
                    ledger,
                    conversations,
                    policy,
                    approvals,
                    COMMANDS,
                    events,
                    self.clock,
                    media or media_step(),
                    Budget(database, self.clock),
                )
                async with Gateway.open(rooms) as gateway:
                    gateway.use(streaming={}, album_quiet_s={channel.name: ALBUM_QUIET_S})
                    await gateway.recover({channel.name: channel})
                    yield Open(gateway, channel, agent, ledger, database, conversations, news)

    def rows(self, query: str) -> list[tuple]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()

    def outcomes(self) -> dict[str, str | None]:
        return dict(self.rows("SELECT message_id, outcome FROM inbox ORDER BY id"))


@pytest.fixture
def install(tmp_path: Path) -> Install:
    return Install(tmp_path / "memory.db")
