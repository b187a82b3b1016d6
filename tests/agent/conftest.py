from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fermix.agent.agent import Agent, AgentServices
from fermix.agent.approvals import Approvals
from fermix.agent.capability import Capability
from fermix.agent.context import PromptSettings
from fermix.agent.loop import ModelRouter
from fermix.agent.memory import Conversations
from fermix.agent.memory.facts import Remembered
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.turn import Turn, TurnOutcome
from fermix.config.model import AgentSettings, PersonalizationSettings
from fermix.events import EventQueue, Events
from fermix.home import Home
from fermix.store import Database
from fermix.workers import Workers
from tests.fakes.clock import ManualClock
from tests.fakes.turns import RecordingPort


class CountingWorkers(Workers):
    """The real pool; it remembers what it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    async def run(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.ran.append(fn.__name__)
        return await super().run(fn, *args, **kwargs)


async def nothing() -> Remembered:
    return Remembered()


@dataclass
class World:
    """An agent with everything real around it but the model: home, database, conversations, workers."""

    home: Home
    conversations: Conversations
    workers: CountingWorkers
    events: Events
    seen: EventQueue
    clock: ManualClock
    registry: CapabilityRegistry = field(default_factory=CapabilityRegistry)
    port: RecordingPort = field(default_factory=RecordingPort)

    def settings(self, name: str = "Ada") -> PromptSettings:
        return PromptSettings(AgentSettings(name=name), PersonalizationSettings())

    @asynccontextmanager
    async def open(
        self, router: ModelRouter, *tools: Capability, remembered: Callable[[], Awaitable[Remembered]] = nothing
    ) -> AsyncGenerator[Agent]:
        self.registry = CapabilityRegistry(tools)
        services = AgentServices(
            registry=self.registry,
            router=router,
            history=self.conversations,
            home=self.home,
            settings=self.settings(),
            workers=self.workers,
            events=self.events,
            clock=self.clock,
            approvals=Approvals(self.clock),
            remembered=remembered,
        )
        async with asyncio.timeout(5), Agent.open(services) as agent:
            yield agent

    async def run(self, agent: Agent, turn: Turn) -> TurnOutcome:
        return await agent.run(turn, self.port)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    home = Home(tmp_path / "home")
    home.prepare()
    clock = ManualClock()
    events = Events(clock)
    workers = CountingWorkers()
    async with Database.open(home.database) as database, Conversations.open(database, clock, events) as conversations:
        with events.subscribe(10_000) as seen:
            yield World(home, conversations, workers, events, seen, clock)
    workers.close()
