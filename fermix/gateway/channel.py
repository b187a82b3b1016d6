"""What the gateway asks of a channel. A channel speaks its platform; all rules are the gateway's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from fermix.agent.model import Delta
from fermix.message import Message, Reply


class LiveView(Protocol):
    """A surface that shows progress as it happens (terminal clients). Never blocks and never raises."""

    def show(self, message: Message, delta: Delta) -> None: ...


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a channel can do beyond sending; None where it cannot. More come with the platform channels."""

    live: LiveView | None = None


class Channel(Protocol):
    """One platform. `name` is what config and conversation keys call it; `text_limit` is the longest text of
    one send in characters, None for no limit.
    """

    @property
    def name(self) -> str: ...

    @property
    def abilities(self) -> Abilities: ...

    @property
    def text_limit(self) -> int | None: ...

    async def send(self, message: Message, reply: Reply) -> str:
        """Answer a message; returns the platform's id of what was sent.

        Raises: ChannelUnavailable.
        """
        ...


Ingest = Callable[[Message, Channel], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ChannelSpec:
    """A line of the channel catalog. `local` channels are always operator."""

    name: str
    local: bool
    list_key: str | None = None
    settings: type | None = field(default=None)
