"""A gateway with the real agent behind it: real HTTP to a scripted model, real commands, real history. Only the model
and the platform are fakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fermix.agent.agent import Agent, AgentServices
from fermix.agent.approvals import Approvals
from fermix.agent.budget import Budget
from fermix.agent.capability import Capability
from fermix.agent.context import PromptSettings
from fermix.agent.memory import Conversations
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.tools.catalog import build_tools
from fermix.config.model import AgentSettings, PersonalizationSettings
from fermix.events import EventQueue, Events, MessageSettled
from fermix.gateway import Authorizer, Gateway, Ledger, Rooms
from fermix.gateway.commands.catalog import COMMANDS
from fermix.home import Home
from fermix.net import Net
from fermix.store import Database
from fermix.workers import Workers
from tests.fakes.channel import Ability, FakeChannel, message
from tests.fakes.clock import ManualClock
from tests.fakes.platform import Platform
from tests.fakes.policy import policy_in
from tests.fakes.provider import Script, ScriptedProvider
from tests.fakes.routes import router_to
from tests.fakes.tools import tool_deps
from tests.fakes.transcriber import media_step
from tests.gateway.conftest import ACCESS


@dataclass
class Whole:
    """One daemon's worth of rooms. `model` is the server that plays it."""

    gateway: Gateway
    channel: FakeChannel
    model: ScriptedProvider
    conversations: Conversations
    database: Database
    news: EventQueue
    clock: ManualClock
    workspace: Path
    budget: Budget

    @property
    def platform(self) -> Platform:
        return self.channel.platform

    async def say(self, text: str, id: str = "m1", sender: str = "1", **more: object) -> None:
        said = message(text, id=id, channel="chat", sender=sender, **more)  # type: ignore[arg-type]
        await self.gateway.ingest(said, self.channel)

    async def settled(self, count: int) -> dict[str, str]:
        """The next messages that get their last word, with their outcomes."""
        found: dict[str, str] = {}
        async with asyncio.timeout(5):
            while len(found) < count:
                event = (await self.news.get()).event
                if isinstance(event, MessageSettled):
                    found[event.message_id] = event.outcome
        return found

    async def rows(self, query: str) -> list[tuple[object, ...]]:
        await self.database.run(lambda _: None)  # behind all that was queued
        return [tuple(row) for row in await self.database.read(query)]


@asynccontextmanager
async def whole_in(
    folder: Path, script: Script, *tools: Capability, can: Collection[Ability] = (), platform: Platform | None = None
) -> AsyncGenerator[Whole]:
    clock = ManualClock()
    events = Events(clock)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(20))
        policy = stack.enter_context(policy_in(folder, clock))
        home = Home(folder / "user/.fermix")
        workers = Workers()
        stack.callback(workers.close)
        news = stack.enter_context(events.subscribe(100_000))
        database = await stack.enter_async_context(Database.open(home.database))
        conversations = await stack.enter_async_context(Conversations.open(database, clock, events))
        net = await stack.enter_async_context(Net.open(loopback_only=True))
        model = await stack.enter_async_context(ScriptedProvider(script))
        approvals = Approvals(clock)
        deps = tool_deps(home, policy, approvals, workers, net=net)
        services = AgentServices(
            registry=CapabilityRegistry([*build_tools(deps), *tools]),
            router=router_to(model, net, events),
            history=conversations,
            home=home,
            settings=PromptSettings(AgentSettings(name="Ada"), PersonalizationSettings()),
            workers=workers,
            events=events,
            clock=clock,
            approvals=approvals,
        )
        agent = await stack.enter_async_context(Agent.open(services))
        ledger, budget = Ledger(database, clock), Budget(database, clock)
        rooms = Rooms(
            agent,
            Authorizer(ACCESS),
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
        channel = FakeChannel("chat", platform=platform, can=can)
        channel.platform.clock = clock
        gateway = await stack.enter_async_context(Gateway.open(rooms))
        yield Whole(gateway, channel, model, conversations, database, news, clock, home.workspace, budget)
