"""The agent: owner of the cached runtime context, and the face the gateway talks to.

`run` answers one message, `commit` stores the answer once it is delivered, `abandon` closes a turn that has none.
What must stay true: a running turn keeps the context it began with; a change only drops the cached one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

from fermix.agent.approvals import Approvals
from fermix.agent.compaction.compactor import Compacted, Compactor
from fermix.agent.compaction.settings import CompactionSettings
from fermix.agent.context import PromptSettings, RuntimeContext, build_context
from fermix.agent.dispatch import Dispatcher
from fermix.agent.loop import ModelRouter
from fermix.agent.markers import FAILED, STOPPED, WORDLESS
from fermix.agent.memory.facts import Remembered
from fermix.agent.model import AssistantMessage
from fermix.agent.prompt import load, seed
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.runner import History, RunnerServices, TurnRunner, store_question
from fermix.agent.turn import Cancelled, Completed, Failed, ReplyPort, Turn, TurnOutcome
from fermix.clock import Clock
from fermix.errors import FermixError
from fermix.events import Events
from fermix.home import Home
from fermix.message import ConversationKey
from fermix.supervisor import OURS, Supervisor
from fermix.workers import Workers

log = logging.getLogger(__name__)


async def _nothing() -> Remembered:
    return Remembered()


@dataclass(frozen=True, slots=True)
class AgentServices:
    """What the agent works with, wired by the composition root."""

    registry: CapabilityRegistry
    router: ModelRouter
    history: History
    home: Home
    settings: PromptSettings
    workers: Workers
    events: Events
    clock: Clock
    approvals: Approvals
    remembered: Callable[[], Awaitable[Remembered]] = _nothing
    """The texts of the prompt that are made from the facts; a memory that cannot be read is in the answer."""
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    ended: Callable[[Turn], None] = lambda _turn: None
    """Told of every turn that has ended; never waits and never raises."""


class Agent:
    """Made by `open`. One per daemon."""

    def __init__(self, services: AgentServices) -> None:
        self._services = services
        self._history = services.history
        self._context: RuntimeContext | None = None
        self._changes = 0
        self._building = asyncio.Lock()
        dispatcher = Dispatcher(services.events, services.clock, services.approvals)
        self._compactor = Compactor(
            services.history, services.events, services.clock, services.router, services.compaction
        )
        self._runner = TurnRunner(
            RunnerServices(
                self._checkout, services.history, self._compactor, dispatcher, services.events, services.clock
            )
        )

    @classmethod
    @asynccontextmanager
    async def open(cls, services: AgentServices) -> AsyncGenerator[Agent]:
        """Seed the prompt files that are missing, and sum up conversations in the background."""
        await services.workers.run(seed, services.home, services.settings.agent.name)
        agent = cls(services)
        async with Supervisor([agent._compactor], OURS, services.events, services.clock):
            yield agent

    def invalidate(self) -> None:
        """Let the next turn build a fresh context: tools, memory, prompt files or routes have changed."""
        self._context = None
        self._changes += 1

    def reconfigure(
        self,
        *,
        registry: CapabilityRegistry,
        router: ModelRouter,
        settings: PromptSettings,
        compaction: CompactionSettings,
    ) -> None:
        """Take what a new configuration brought; running turns keep what they have."""
        self._services = replace(
            self._services, registry=registry, router=router, settings=settings, compaction=compaction
        )
        self._compactor.use(router, compaction)
        self.invalidate()

    async def run(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        """Answer one message. Raises nothing that was foreseen; cancellation passes through."""
        try:
            return await self._runner.run(turn, port)
        finally:
            self._services.ended(turn)

    async def commit(self, turn: Turn, outcome: Completed) -> None:
        """Store what a turn added, after its reply was delivered. A history that fails is logged."""
        with _unsettling_nothing(turn):
            await self._history.append(
                turn.key,
                *outcome.new_messages,
                model=outcome.model,
                outside=outcome.outside,
                version=outcome.history_version,
                ledger_id=turn.ledger_id,
            )
        self._compactor.delivered(turn.key, outcome.peak)

    async def compact(self, key: ConversationKey) -> Compacted:
        """Sum up the older part of a conversation. Raises: FermixError with a sentence for the sender."""
        return await self._compactor.asked(key)

    async def restore(self, turn: Turn, text: str, model: str) -> None:
        """Store the delivered answer of an earlier process as far as it is not stored; not in a newer session.

        A history that fails is logged.
        """
        with _unsettling_nothing(turn):
            version = None if turn.ledger_id is None else await self._history.session_of(turn.ledger_id)
            await store_question(self._history, turn, version)
            answer = AssistantMessage(text or WORDLESS)
            await self._history.append(turn.key, answer, model=model, version=version, ledger_id=turn.ledger_id)

    async def abandon(self, turn: Turn, outcome: Cancelled | Failed) -> None:
        """Close a turn without an answer, so that its message is not answered later. A history that fails is logged."""
        with _unsettling_nothing(turn):
            if isinstance(outcome, Cancelled):
                await self._history.close_dangling(turn.key, STOPPED)
            else:
                await self._history.close_dangling(turn.key, FAILED, outcome.user_text)

    async def _checkout(self) -> RuntimeContext:
        """Return the cached context; the first of several turns builds it, the others wait for that."""
        async with self._building:
            if self._context is not None:
                return self._context
            changes = self._changes
            remembered = await self._services.remembered()
            context = await self._build(remembered)
            if changes == self._changes and not remembered.problem:
                self._context = context
            return context

    async def _build(self, remembered: Remembered) -> RuntimeContext:
        services = self._services
        files = await services.workers.run(load, services.home, services.settings.agent.name)
        broken = bool(remembered.problem)
        told = replace(files, user=remembered.user, memory=remembered.memory, memory_broken=broken)
        return build_context(services.router, services.registry, told, services.settings)


@contextmanager
def _unsettling_nothing(turn: Turn) -> Generator[None]:
    """The sender has been answered by now: a history that fails must not keep the message from being settled."""
    try:
        yield
    except FermixError as error:
        log.error("turn %s is not in the history: %s", turn.id, error)  # noqa: TRY400 - explained, nothing to trace
