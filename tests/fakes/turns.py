"""Small makers for what a turn is made of, and a port that remembers what went through it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from fermix.agent.capability import Capability, Kind, RunTool, ToolContext
from fermix.agent.dispatch import ToolScope
from fermix.agent.model import Delta, JsonObject, JsonValue, TextDelta, ToolCall, ToolResult
from fermix.agent.turn import Turn
from fermix.events import EventQueue
from fermix.message import LocalOrigin, Message, Reply, Sender
from fermix.trust import PolicyClass, Trust

T = TypeVar("T")

RECEIVED_AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
ANY_OBJECT: JsonObject = {"type": "object"}


def make_message(text: str = "hello", *, chat_id: str = "main") -> Message:
    return Message(
        id="m1",
        channel="cli",
        chat_id=chat_id,
        sender=Sender("u1", "Owner"),
        text=text,
        reply_target=chat_id,
        received_at=RECEIVED_AT,
    )


def make_turn(
    text: str = "hello",
    *,
    turn_id: str = "t1",
    trust: Trust = Trust.OPERATOR,
    chat_id: str = "main",
    deadline_s: float = 60,
    ledger_id: int | None = None,
) -> Turn:
    message = make_message(text, chat_id=chat_id)
    return Turn(turn_id, message, trust, attended=True, deadline_s=deadline_s, ledger_id=ledger_id)


def turn_from(folder: Path) -> Turn:
    """The turn of an operator at this machine, who speaks from a folder."""
    turn = make_turn()
    return replace(turn, message=replace(turn.message, origin=LocalOrigin(folder)))


async def answer_ok(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
    return ToolResult(True, "done")


def make_capability(
    name: str = "look",
    run: RunTool = answer_ok,
    *,
    parameters: JsonObject = ANY_OBJECT,
    kind: Kind = Kind.BUILTIN,
    policy: PolicyClass = PolicyClass.READ_ONLY,
    owner_only: bool = False,
    category: str = "system",
    timeout_s: float = 5.0,
    source: str = "",
    description: str | None = None,
) -> Capability:
    return Capability(
        name=name,
        description=f"{name} at something" if description is None else description,
        parameters=parameters,
        kind=kind,
        policy=policy,
        owner_only=owner_only,
        run=run,
        category=category,
        timeout_s=timeout_s,
        source=source,
    )


def make_call(name: str = "look", /, number: int = 1, **arguments: JsonValue) -> ToolCall:
    return ToolCall(f"call{number:05d}", name, arguments)


@dataclass
class RecordingPort:
    """A ReplyPort that keeps what it is given."""

    sent: list[Reply] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)

    async def send(self, reply: Reply) -> None:
        self.sent.append(reply)

    async def effect(self, name: str) -> None:
        self.effects.append(name)

    def stream(self, delta: Delta) -> None:
        self.deltas.append(delta)

    @property
    def streamed_text(self) -> str:
        return "".join(delta.text for delta in self.deltas if isinstance(delta, TextDelta))


def make_scope(*tools: Capability, turn: Turn | None = None, port: RecordingPort | None = None) -> ToolScope:
    by_name = {tool.name: tool for tool in tools}
    return ToolScope(by_name, turn or make_turn(), port or RecordingPort())


def of_kind(queue: EventQueue, kind: type[T]) -> list[T]:
    """Take the events of one kind that have arrived; the others are dropped."""
    return [item.event for item in queue.drain() if isinstance(item.event, kind)]
