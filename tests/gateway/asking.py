"""A gateway whose agent asks its owner for a folder: everything is real but the model and the platform."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from fermix.agent.approvals import Approvals
from fermix.agent.budget import Budget
from fermix.agent.capability import ToolContext
from fermix.agent.sandbox import Policy, SandboxSettings
from fermix.agent.tools.directory_access import DirectoryAccess
from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.clock import SystemClock
from fermix.errors import FermixError
from fermix.events import EventQueue, Events, MessageSettled
from fermix.gateway import Access, Authorizer, Gateway, Ledger, Rooms
from fermix.gateway.commands.catalog import COMMANDS
from fermix.message import LocalOrigin, Message
from fermix.store import Database
from fermix.workers import Workers
from tests.fakes.channel import FakeAgent, FakeChannel, completed, message
from tests.fakes.clock import ManualClock
from tests.fakes.policy import policy_in
from tests.fakes.transcriber import media_step
from tests.gateway.conftest import Conversations

ACCESS = {
    "cli": Access(local=True),
    "chat": Access(local=False, owner="1", listed=frozenset({"2", "3"}), commanders=frozenset({"2"})),
}
CODE = re.compile(r"/confirm ([A-Z2-7]{8})")
ID = re.compile(r"/confirm ([0-9a-f]{12})")


@dataclass
class Scene:
    """A gateway whose agent asks for `shut` in every turn until it may look into it."""

    gateway: Gateway
    clock: ManualClock
    policy: Policy
    authorizer: Authorizer
    agent: FakeAgent
    chat: FakeChannel
    local: FakeChannel
    news: EventQueue
    shut: Path
    turns: list[Turn]
    count: int = 0

    async def say(self, text: str, *, sender: str = "1", settles: int = 1, **where: object) -> list[str]:
        """Send it on the chat channel and wait until it has settled; returns the texts that came meanwhile."""
        said = message(text, id=self._id(), channel="chat", sender=sender, **where)  # type: ignore[arg-type]
        return await self.ingest(said, self.chat, settles)

    async def type(self, text: str, *, attended: bool = True, session: str = "tui") -> list[str]:
        """Type it at the terminal."""
        said = replace(message(text, id=self._id(), chat=session), origin=LocalOrigin(None, attended=attended))
        return await self.ingest(said, self.local, 1)

    async def tap(self, prompt_id: str, *, sender: str = "1", yes: bool = True, settles: int = 1) -> list[str]:
        tapped = replace(self.chat.tap(prompt_id, sender=sender, id=self._id(), chat="group", yes=yes), private=False)
        return await self.ingest(tapped, self.chat, settles)

    async def ingest(self, said: Message, channel: FakeChannel, settles: int) -> list[str]:
        before = [len(fake.platform.log("send", "ask")) for fake in (self.chat, self.local)]
        await self.gateway.ingest(said, channel)
        async with asyncio.timeout(5):
            while settles:
                settles -= isinstance((await self.news.get()).event, MessageSettled)
        return [
            entry.text
            for fake, seen in zip((self.chat, self.local), before, strict=True)
            for entry in fake.platform.log("send", "ask")[seen:]
        ]

    async def idle(self) -> None:
        """Wait until nothing runs, what came in by itself included."""
        async with asyncio.timeout(5):
            await self.gateway.lanes.idle()
        self.news.drain()

    def _id(self) -> str:
        self.count += 1
        return f"m{self.count}"

    @property
    def opened(self) -> bool:
        return any(root.path == self.shut for root in self.policy.sandbox.standing())


@asynccontextmanager
async def scene_in(
    tmp_path: Path, *, buttons: bool = False, text_limit: int | None = None, settings: SandboxSettings | None = None
) -> AsyncGenerator[Scene]:
    clock, workers = ManualClock(), Workers()
    shut = tmp_path / "shut"
    shut.mkdir()
    events, authorizer, approvals = Events(SystemClock()), Authorizer(ACCESS), Approvals(clock)
    chat = FakeChannel("chat", can=("buttons",) if buttons else ())
    chat.platform.text_limit = text_limit
    with policy_in(tmp_path, clock, settings) as policy:
        tool = DirectoryAccess(policy.sandbox, policy, approvals, workers)

        turns: list[Turn] = []

        async def asks(turn: Turn, port: ReplyPort) -> TurnOutcome:
            turns.append(turn)
            try:
                result = await tool.run({"path": str(shut), "reason": "to look"}, ToolContext(turn, port, "c1"))
            except FermixError as error:
                return completed(f"no: {error}")
            return completed(result.text)

        agent = FakeAgent(asks)
        async with Database.open(tmp_path / "memory.db") as database:
            ledger = Ledger(database, clock)
            rooms = Rooms(
                agent,
                authorizer,
                ledger,
                Conversations(),
                policy,
                approvals,
                COMMANDS,
                events,
                SystemClock(),
                media_step(),
                Budget(database, SystemClock()),
            )
            with events.subscribe(100_000) as news:
                async with Gateway.open(rooms) as gateway:
                    yield Scene(gateway, clock, policy, authorizer, agent, chat, FakeChannel(), news, shut, turns)
    workers.close()


def found(pattern: re.Pattern[str], texts: list[str]) -> str:
    match = pattern.search("\n".join(texts))
    assert match is not None, texts
    return match.group(1)
