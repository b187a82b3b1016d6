"""One turn, its outcome, and the only way back to the outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fermix.agent.model import ChatMessage, Delta, Usage
from fermix.message import ConversationKey, Message, Reply
from fermix.trust import Trust


@dataclass(frozen=True, slots=True)
class Turn:
    """One message to answer. `trust` was decided at ingress; `attended` says a person waits for this turn;
    `deadline_s` bounds the whole turn.
    """

    id: str
    message: Message
    trust: Trust
    attended: bool
    parent_id: str | None = None
    deadline_s: float = 3_600.0

    @property
    def key(self) -> ConversationKey:
        return self.message.key


@dataclass(frozen=True, slots=True)
class Completed:
    """The loop ended with an answer. `model` is "provider/model" of the last call; `new_messages` are what the
    history gets at commit, calls and results included, and `history_version` is the history they belong to.
    """

    text: str
    model: str
    usage: Usage
    steps: int
    tool_failures: int = 0
    new_messages: tuple[ChatMessage, ...] = ()
    history_version: int = 0


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody stopped the turn; nothing is delivered."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn ended with an error. `user_text` is what the sender reads, `reason` is for the trace."""

    user_text: str
    reason: str


TurnOutcome = Completed | Cancelled | Failed


class ReplyPort(Protocol):
    """All a turn may do to the outside while it runs."""

    async def send(self, reply: Reply) -> None:
        """Deliver now. Raises: ChannelUnavailable."""
        ...

    def stream(self, delta: Delta) -> None:
        """Show progress where the channel can; never blocks, never raises, may be dropped."""
        ...
