"""From a message to the bytes of a request, with 40 tools and 100 messages; against `json.dumps` of that request."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.figures import Figure, p50
from fermix.agent.agent import Agent, AgentServices
from fermix.agent.approvals import Approvals
from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.context import PromptSettings
from fermix.agent.memory import Conversations
from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    Completion,
    Delta,
    JsonValue,
    Purpose,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from fermix.agent.providers.anthropic import MessagesWire
from fermix.agent.providers.openai_chat import ChatWire
from fermix.agent.providers.openai_responses import ResponsesWire
from fermix.agent.providers.provider import ModelFacts, OnDelta, Provider, Route
from fermix.agent.providers.wire import Wire, encode_body
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.turn import Completed, Turn
from fermix.clock import SystemClock
from fermix.config.model import AgentSettings, PersonalizationSettings
from fermix.events import Events
from fermix.home import Home
from fermix.message import ConversationKey, Message, Reply, Sender
from fermix.store import Database
from fermix.trust import PolicyClass, Trust
from fermix.workers import Workers

ROUNDS = 40
TOOLS = 40
HISTORY = 100
WIRES: dict[str, Wire] = {"chat": ChatWire(), "messages": MessagesWire(), "responses": ResponsesWire()}
ROUTE = Route("bench", "bench")
WORDS = "A tool that stands for one of the tools of an agent, with a description of the usual length. " * 5
TEXT = {"type": "string", "description": "An argument of it. " * 4}


def figures() -> Iterator[Figure]:
    for name, wire in WIRES.items():
        with tempfile.TemporaryDirectory() as folder:
            measured = asyncio.run(_measure(Path(folder), wire))
        yield Figure(f"compose.{name}.request_size", measured.size_bytes / 1000, "kB")
        yield Figure(f"compose.{name}.cpu", p50(measured.composed_s) * 1000, "ms")
        ratio = p50(measured.composed_s) / p50(measured.dumped_s)
        yield Figure(f"compose.{name}.ratio", ratio, "times json.dumps of the request", 5.0)


@dataclass
class Measured:
    """A router that makes the bytes of each request, looks at the time, and answers at once."""

    wire: Wire
    began_s: float = 0.0
    size_bytes: int = 0
    composed_s: list[float] = field(default_factory=list)
    dumped_s: list[float] = field(default_factory=list)

    @property
    def route(self) -> Route:
        return ROUTE

    @property
    def facts(self) -> ModelFacts:
        return ModelFacts(context_tokens=200_000, max_output_tokens=8_000, vision=True)

    @property
    def routes(self) -> tuple[Provider, ...]:
        return (self,)  # type: ignore[return-value]

    @property
    def current(self) -> Route:
        return ROUTE

    async def complete(
        self,
        request: ChatRequest,
        on_delta: OnDelta,
        *,
        turn_id: str = "",
        purpose: Purpose = "turn",
        key: ConversationKey | None = None,
    ) -> Completion:
        body = self.wire.body(request, ROUTE.model)
        self.size_bytes = len(encode_body(body))
        self.composed_s.append(time.thread_time() - self.began_s)
        began_s = time.thread_time()
        json.dumps(body)
        self.dumped_s.append(time.thread_time() - began_s)
        assert len(request.tools) == TOOLS, f"{len(request.tools)} tools"
        assert len(request.messages) == HISTORY + 1, f"{len(request.messages)} messages"
        return Completion("done", (), Usage(10, 2), "stop", ROUTE.provider, ROUTE.model)


class Port:
    """A reply port that nobody listens at."""

    async def send(self, reply: Reply) -> None: ...

    async def effect(self, name: str) -> None: ...

    def stream(self, delta: Delta) -> None: ...


async def _measure(folder: Path, wire: Wire) -> Measured:
    """Each round is the first turn after a hundred messages, in a conversation of its own; the first warms."""
    home, clock, measured, workers = Home(folder / "home"), SystemClock(), Measured(wire), Workers()
    home.prepare()
    events = Events(clock)
    settings = PromptSettings(AgentSettings(name="Bench"), PersonalizationSettings())
    async with Database.open(home.database) as database, Conversations.open(database, clock, events) as conversations:
        services = AgentServices(
            CapabilityRegistry([_tool(number) for number in range(TOOLS)]), measured, conversations, home, settings,
            workers, events, clock, Approvals(clock),
        )  # fmt: skip
        async with Agent.open(services) as agent:
            for number in range(ROUNDS + 1):
                await _turn(agent, conversations, measured, str(number))
    workers.close()
    del measured.composed_s[0], measured.dumped_s[0]
    return measured


async def _turn(agent: Agent, conversations: Conversations, measured: Measured, chat: str) -> None:
    key = ConversationKey("cli", chat, "root")
    await conversations.append(key, *_history())
    await conversations.flush()
    asked = Message("m", "cli", chat, Sender("u", "Owner"), "words " * 40, chat, SystemClock().now())
    measured.began_s = time.thread_time()
    outcome = await agent.run(Turn("t", asked, Trust.OPERATOR, attended=True, deadline_s=60.0), Port())
    assert isinstance(outcome, Completed), outcome


def _history() -> list[ChatMessage]:
    """Twenty-five turns of four messages, each with a call and its result."""
    said: list[ChatMessage] = []
    for number in range(HISTORY // 4):
        call = ToolCall(f"call{number:05}", "tool_1", {"a": "words " * 5, "b": str(number)})
        said += [
            UserMessage("words " * 40),
            AssistantMessage("", (call,)),
            ToolMessage(call.id, call.name, "a line of what was found\n" * 30, ok=True),
            AssistantMessage("word " * 60),
        ]
    return said


async def _nothing(_arguments: Mapping[str, JsonValue], _context: ToolContext) -> ToolResult:
    return ToolResult(ok=True, text="done")


def _tool(number: int) -> Capability:
    return Capability(
        name=f"tool_{number}",
        description=WORDS,
        parameters={"type": "object", "properties": dict.fromkeys("abcd", TEXT), "required": ["a"]},
        kind=Kind.BUILTIN,
        policy=PolicyClass.READ_ONLY,
        owner_only=False,
        run=_nothing,
        category="system",
        timeout_s=5.0,
        source="",
    )
