"""One turn, its outcome, and the only way back to the outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fermix.agent.approvals import Seam
from fermix.agent.model import ChatMessage, Delta, Usage
from fermix.message import ConversationKey, Message, Reply
from fermix.trust import Trust


@dataclass(frozen=True, slots=True)
class WayBack:
    """What the chat of a turn takes besides text: files, and these emoji as reactions to its message."""

    files: bool = False
    reactions: tuple[str, ...] = ()


NOTHING_BUT_TEXT = WayBack()


@dataclass(frozen=True, slots=True)
class Turn:
    """One message to answer. `trust` was decided at ingress; `attended` says a person waits for this turn;
    `deadline_s` bounds the whole turn. `ledger_id` is the accepted message it answers, None when nobody sent one; a
    turn that runs again after a crash has the same one and stores nothing twice. `seam` is how the owner can be asked
    for something; the gateway attaches it to messages of operators only. `way_back` is what can be sent.
    """

    id: str
    message: Message
    trust: Trust
    attended: bool
    parent_id: str | None = None
    deadline_s: float = 3_600.0
    ledger_id: int | None = None
    seam: Seam | None = None
    way_back: WayBack = NOTHING_BUT_TEXT

    @property
    def key(self) -> ConversationKey:
        return self.message.key

    @property
    def may_ask(self) -> bool:
        """Whether it may ask the owner: an operator's, attended, no part of another turn, and with a way to ask."""
        return self.trust is Trust.OPERATOR and self.attended and self.parent_id is None and self.seam is not None


@dataclass(frozen=True, slots=True)
class RequestSize:
    """Tokens of a request, by the provider's count where it told one (`measured`), else by estimate."""

    tokens: int = 0
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Completed:
    """The loop ended with an answer. `model` is "provider/model" of the last call; `new_messages` are what the
    history gets at commit, calls and results included, and `history_version` is the history they belong to. `peak`
    is the largest request of the turn. `outside`: words from outside stood before the model (R-49).
    """

    text: str
    model: str
    usage: Usage
    steps: int
    tool_failures: int = 0
    new_messages: tuple[ChatMessage, ...] = ()
    history_version: int = 0
    peak: RequestSize = RequestSize()
    outside: bool = False


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
        """Deliver now. Raises: ChannelUnavailable; Unusable for what the chat cannot take."""
        ...

    async def effect(self, name: str) -> None:
        """Write down, before it happens, that this turn is about to change something outside: it never runs again.

        Raises: NeedsOperator or Unavailable when it cannot be written; then the change must not happen.
        """
        ...

    def stream(self, delta: Delta) -> None:
        """Show progress where the channel can; never blocks, never raises, may be dropped."""
        ...
