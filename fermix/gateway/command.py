"""Slash commands: what one is, how it is read, who may run it. They run on the way in and never wait for a turn."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from fermix.gateway.queue import Lanes, Slot
from fermix.gateway.replies import Replier
from fermix.message import ConversationKey, Message
from fermix.trust import Trust

NAME = re.compile(r"/([A-Za-z][A-Za-z0-9_]*)(?:\s+|$)")


class Conversations(Protocol):
    """What commands do to history."""

    async def clear(self, key: ConversationKey) -> None: ...


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Facts and services of one call. `rest` is the raw text behind the name, line breaks kept.
    `slot` is the command's own place in the lane; it is given back when the command is done.
    """

    message: Message
    trust: Trust
    rest: str
    replier: Replier
    slot: Slot
    lanes: Lanes
    conversations: Conversations
    commands: Sequence[Command]


@dataclass(frozen=True, slots=True)
class Command:
    """`who` "anyone" is any allowed sender, "operator" is nobody else."""

    name: str
    summary: str
    who: Literal["anyone", "operator"]
    run: Callable[[CommandContext], Awaitable[None]]
    aliases: tuple[str, ...] = ()

    def allows(self, trust: Trust) -> bool:
        return self.who == "anyone" or trust is Trust.OPERATOR


def parse(text: str, commands: Sequence[Command]) -> tuple[Command, str] | None:
    """Read a command and the raw text behind it; None when the text is none of ours and goes to the agent."""
    stripped = text.lstrip()
    match = NAME.match(stripped)
    if match is None:
        return None
    name = match.group(1).lower()
    found = next((command for command in commands if name in (command.name, *command.aliases)), None)
    return (found, stripped[match.end() :]) if found else None
