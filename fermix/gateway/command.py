"""Slash commands: what one is, how it is read, who may run it. They run on the way in and never wait for a turn."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, assert_never

from fermix.agent.approvals import Approvals
from fermix.agent.budget import Budget
from fermix.agent.compaction.compactor import Compacted
from fermix.agent.sandbox import Policy
from fermix.gateway.authorize import Authorization
from fermix.gateway.queue import Lanes, Slot
from fermix.gateway.replies import Replier
from fermix.message import ConversationKey, Message
from fermix.trust import Trust

NAME = re.compile(r"/([A-Za-z][A-Za-z0-9_]*)(?:\s|$)")


class Conversations(Protocol):
    """What the gateway does to history: `clear` is for commands, `expect` for a start that finds turns unfinished."""

    async def clear(self, key: ConversationKey) -> None: ...

    def expect(self, ledger_ids: Iterable[int]) -> None: ...


@dataclass(frozen=True, slots=True)
class CommandContext:
    """Facts and services of one call. `rest` is the raw text behind the name, line breaks kept.
    `slot` is the command's own place in the lane; it is given back when the command is done.
    """

    message: Message
    sender: Authorization
    rest: str
    replier: Replier
    slot: Slot
    lanes: Lanes
    conversations: Conversations
    policy: Policy
    approvals: Approvals
    commands: Sequence[Command]
    budget: Budget
    compact: Callable[[ConversationKey], Awaitable[Compacted]]


RunCommand = Callable[[CommandContext], Awaitable[None]]
Reach = Literal["conversation", "everything"]
Who = Literal["anyone", "commanders", "operator"]


@dataclass(frozen=True, slots=True)
class Command:
    """`who`: "anyone" is any allowed sender; "commanders" are the owner and whom the config lets run commands that
    change something, each with the trust they have; "operator" is nobody else. `in_person`: refused to a program
    that nobody sits in front of, whoever it speaks for. `run` None: this version cannot do it, `missing` says so.
    """

    name: str
    summary: str
    who: Who
    run: RunCommand | None
    aliases: tuple[str, ...] = ()
    in_person: bool = False
    missing: str = ""

    def allows(self, sender: Authorization) -> bool:
        """Say whether this sender may run it at all."""
        match self.who:
            case "anyone":
                return True
            case "commanders":
                return sender.commands
            case "operator":
                return sender.trust is Trust.OPERATOR
            case _:
                assert_never(self.who)


def why_refused(command: Command, sender: Authorization, message: Message) -> str | None:
    """Say why this sender may not run it now, or None."""
    if not command.allows(sender):
        return f"/{command.name} is for the owner of this agent."
    if command.in_person and not is_attended(message):
        return f"/{command.name} is refused to a program that runs without a person; type it at your own terminal."
    return None


def stop_reach(rest: str, sender: Authorization, message: Message) -> Reach | None:
    """Say how far a `/stop` goes that this sender may run, None when more stands behind it than it takes.

    The owner's ends everything, but at a local client only where it was typed unless it says "all"; anybody else's
    ends that conversation alone.
    """
    word = rest.strip().lower()
    if word not in ("", "all"):
        return None
    is_wide = word == "all" or message.origin is None
    return "everything" if is_wide and sender.trust is Trust.OPERATOR else "conversation"


def is_attended(message: Message) -> bool:
    """Say whether a person is behind a message, as far as the system knows."""
    return message.origin is None or message.origin.attended


def parse(text: str, commands: Sequence[Command]) -> tuple[Command, str] | None:
    """Read a command and the raw text behind it; None when the text is none of ours and goes to the agent.

    A name with "@" is another bot's: a channel takes off its own before the message comes here.
    """
    stripped = text.lstrip()
    match = NAME.match(stripped)
    if match is None:
        return None
    name = match.group(1).lower()
    found = next((command for command in commands if name in (command.name, *command.aliases)), None)
    return (found, stripped[match.end() :]) if found else None
