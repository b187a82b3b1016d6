"""The real gateway over a real ledger, with an agent that answers at once and a channel that keeps nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fermix.agent.approvals import Approvals
from fermix.agent.budget import Budget
from fermix.agent.memory import Conversations
from fermix.agent.model import Usage
from fermix.agent.sandbox import Policy, Sandbox, SandboxSettings
from fermix.agent.turn import Cancelled, Completed, Failed, ReplyPort, Turn
from fermix.clock import SystemClock
from fermix.events import Events
from fermix.gateway import Abilities, Access, Authorizer, Gateway, Ledger, Rooms
from fermix.gateway.answer import Agent
from fermix.gateway.commands.catalog import COMMANDS
from fermix.gateway.media import MediaStep
from fermix.gateway.transcription.transcriber import Audio, NoBackend
from fermix.home import Home
from fermix.message import Message, Reply, Sender
from fermix.setup.sections import SECTIONS
from fermix.store import Database
from fermix.workers import Workers

CHANNEL = "chat"
OWNER = "1"
QUESTION = "words " * 40


@dataclass(frozen=True)
class House:
    """What is open, and the channel that messages come from."""

    gateway: Gateway
    ledger: Ledger
    database: Database
    channel: Quiet

    async def settled(self) -> None:
        """Wait until every turn has ended and all that it wrote is on disk."""
        await self.gateway.lanes.idle()
        await self.database.run(lambda _: None)


class Quiet:
    """A channel whose platform takes everything at once."""

    name = CHANNEL
    abilities = Abilities()
    text_limit = None
    alive_at = None

    def measure(self, text: str) -> int:
        return len(text)

    async def send(self, message: Message, reply: Reply, key: str) -> str:
        return key


class Instant:
    """An agent whose answers cost nothing."""

    async def run(self, turn: Turn, port: ReplyPort) -> Completed:
        return Completed("Good words. " * 10, "bench/bench", Usage(), steps=1)

    async def commit(self, turn: Turn, outcome: Completed) -> None: ...

    async def abandon(self, turn: Turn, outcome: Cancelled | Failed) -> None: ...

    async def restore(self, turn: Turn, text: str, model: str) -> None: ...


class Endless(Instant):
    """An agent whose turns only a stop ends."""

    async def run(self, turn: Turn, port: ReplyPort) -> Completed:
        return await asyncio.get_running_loop().create_future()


class Deaf:
    """Nobody speaks in a measurement."""

    async def transcribe(self, audio: Audio) -> str:
        raise NoBackend("nobody listens here")


def message(number: int, chat: str, text: str = QUESTION) -> Message:
    return Message(f"m{number}", CHANNEL, chat, Sender(OWNER, "Jo"), text, chat, datetime.now(UTC))


@asynccontextmanager
async def opened(folder: Path, agent: Agent | None = None) -> AsyncGenerator[House]:
    """Open everything on the home in this folder."""
    home, clock, workers = Home(folder / "fermix"), SystemClock(), Workers()
    home.prepare()
    events = Events(clock)
    policy = Policy(Sandbox(SandboxSettings(), home, folder, folder, {}), home, SECTIONS, workers, clock)
    access = {CHANNEL: Access(local=False, owner=OWNER)}
    async with Database.open(home.database) as database, Conversations.open(database, clock, events) as conversations:
        ledger = Ledger(database, clock)
        approvals, media = Approvals(clock), MediaStep(Deaf(), 0)
        rooms = Rooms(
            agent or Instant(),
            Authorizer(access),
            ledger,
            conversations,
            policy,
            approvals,
            COMMANDS,
            events,
            clock,
            media,
            Budget(database, clock),
        )  # fmt: skip
        async with Gateway.open(rooms) as gateway:
            yield House(gateway, ledger, database, Quiet())
    workers.close()
