"""What the gateway asks of a channel. A channel speaks its platform; all rules are the gateway's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from fermix.agent.model import Delta
from fermix.message import ApprovalPrompt, Attachment, Message, Reply

StreamTier = Literal["off", "block", "draft"]


class Typing(Protocol):
    """Shows that an answer is being written. A call holds for a few seconds on the platform."""

    async def show_typing(self, message: Message) -> None:
        """Raises: ChannelUnavailable."""
        ...


class Drafts(Protocol):
    """Messages that can be edited while they grow. `edit_interval_s` is the platform's pace.

    Every call raises ChannelUnavailable, with `retry_after_s` when the platform named a time.
    """

    @property
    def edit_interval_s(self) -> float: ...

    async def open(self, message: Message, text: str, key: str) -> str:
        """Send the first text; returns the platform's id of the draft. `key` is ours, as in a send."""
        ...

    async def edit(self, message: Message, draft: str, text: str) -> None: ...

    async def discard(self, message: Message, draft: str) -> None:
        """Remove the draft from the chat."""
        ...


class Reactions(Protocol):
    """Marks on the message that is being answered. `emoji` are all that the platform takes."""

    @property
    def emoji(self) -> tuple[str, ...]: ...

    async def react(self, message: Message, emoji: str) -> None: ...


class Buttons(Protocol):
    """Approval prompts with buttons. The button carries `prompt.id` and nothing else."""

    async def ask(self, message: Message, prompt: ApprovalPrompt) -> str:
        """Show the prompt with its buttons; returns the platform's id."""
        ...


class Downloads(Protocol):
    """Fetches what a platform names. The body comes in pieces, so that a cap can bite."""

    def download(self, attachment: Attachment) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Raises: ChannelUnavailable on entering or while reading."""
        ...


class Lookup(Protocol):
    """Reads back whether a send with this key landed; returns the platform's id or None when it did not."""

    async def find(self, message: Message, key: str) -> str | None: ...


class LiveView(Protocol):
    """A surface that shows progress as it happens (terminal clients). Never blocks and never raises."""

    def show(self, message: Message, delta: Delta) -> None: ...


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a channel can do beyond sending; None where it cannot. `idempotent`: a second send with the same key is
    recognised by the platform and shown once; `files`: it can be sent a File.
    """

    typing: Typing | None = None
    drafts: Drafts | None = None
    reactions: Reactions | None = None
    buttons: Buttons | None = None
    downloads: Downloads | None = None
    lookup: Lookup | None = None
    live: LiveView | None = None
    idempotent: bool = False
    files: bool = False


class Channel(Protocol):
    """One platform. `name` is what config and conversation keys call it; `text_limit` is the longest text of one
    send in the units of `measure`, None for no limit. `alive_at` is the monotonic time of the last proof that a
    message sent now would be read, None when there was none yet.
    """

    @property
    def name(self) -> str: ...

    @property
    def abilities(self) -> Abilities: ...

    @property
    def text_limit(self) -> int | None: ...

    @property
    def alive_at(self) -> float | None: ...

    def measure(self, text: str) -> int:
        """Length in the platform's unit."""
        ...

    async def send(self, message: Message, reply: Reply, key: str) -> str:
        """Answer a message; returns the platform's id of what was sent. `key` is ours, unique to this send.

        Raises: ChannelUnavailable; its `landed` says whether the platform may have taken it.
        """
        ...
