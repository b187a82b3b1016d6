"""A channel that keeps what it is given, and an agent whose turns the test lets go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fermix.agent.model import Delta, TextDelta, Usage
from fermix.agent.turn import Cancelled, Completed, Failed, ReplyPort, Turn, TurnOutcome
from fermix.errors import ChannelUnavailable
from fermix.gateway.channel import Abilities
from fermix.message import LocalOrigin, Message, Reply, Sender, Text


def message(
    text: str, *, id: str = "m1", chat: str = "chat", channel: str = "cli", sender: str | None = "cli"
) -> Message:
    return Message(
        id=id,
        channel=channel,
        chat_id=chat,
        sender=Sender(sender, "Jo"),
        text=text,
        reply_target=chat,
        received_at=datetime(2026, 11, 30, tzinfo=UTC),
        origin=LocalOrigin(None) if channel == "cli" else None,
    )


class FakeChannel:
    """Keeps replies and deltas; fails while `broken`."""

    text_limit = None

    def __init__(self, name: str = "cli") -> None:
        self.name = name
        self.abilities = Abilities(live=self)
        self.sent: list[tuple[str, str]] = []
        self.deltas: list[Delta] = []
        self.broken = False
        self._arrived = asyncio.Event()

    async def send(self, message: Message, reply: Reply) -> str:
        if self.broken:
            raise ChannelUnavailable("the platform is away")
        assert isinstance(reply, Text)
        self.sent.append((message.id, reply.text))
        self._arrived.set()
        return f"sent-{len(self.sent)}"

    def show(self, message: Message, delta: Delta) -> None:
        self.deltas.append(delta)

    async def wait_for(self, count: int) -> list[tuple[str, str]]:
        async with asyncio.timeout(5):
            while len(self.sent) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.sent


@dataclass
class FakeAgent:
    """Answers each message with its own text in capitals, or as `script` says."""

    script: Callable[[Turn, ReplyPort], Awaitable[TurnOutcome]] | None = None
    started: list[str] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    abandoned: list[tuple[str, str]] = field(default_factory=list)
    running: dict[str, int] = field(default_factory=dict)
    most_at_once: int = 0

    async def run(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        self.started.append(turn.message.id)
        chat = turn.key.chat_id
        self.running[chat] = self.running.get(chat, 0) + 1
        self.most_at_once = max(self.most_at_once, self.running[chat])
        try:
            if self.script is not None:
                return await self.script(turn, port)
            port.stream(TextDelta(turn.message.text.upper()))
            return completed(turn.message.text.upper())
        finally:
            self.running[chat] -= 1

    async def commit(self, turn: Turn, outcome: Completed) -> None:
        self.committed.append(turn.message.id)

    async def abandon(self, turn: Turn, outcome: Cancelled | Failed) -> None:
        self.abandoned.append((turn.message.id, type(outcome).__name__))


def completed(text: str) -> Completed:
    return Completed(text=text, model="fake/model", usage=Usage(10, 2), steps=1)
