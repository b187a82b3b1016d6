"""How an answer is shown while it is written: not at all, in a draft that grows, or in blocks. Chosen once per turn.

The replier shows every delta, and at the end asks `finish` which messages make the answer complete. What must stay
true: whatever was shown before, the chat then holds the whole answer once, and no draft is left behind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from fermix.agent.model import Delta, TextDelta, ToolCallDelta
from fermix.gateway.channel import Channel, StreamTier
from fermix.gateway.text import Measure, split
from fermix.message import Message

Post = Callable[[str], Awaitable[bool]]
"""Send one message of the answer ahead of its end; False when it could not be delivered."""

Note = Callable[[str | None, Sequence[str]], None]
"""Write down what of this turn stands in the chat: the draft at work, and bubbles that are complete but not final."""


Announce = Callable[[str, Sequence[str]], Awaitable[None]]
"""Write down, before it happens, that a draft with this key is about to stand in the chat beside these bubbles; the
platform's id comes later.

Raises: FermixError when it cannot be written; then the draft must not be opened.
"""


@dataclass(frozen=True, slots=True)
class Room:
    """How long one message of a channel may be."""

    limit: int | None
    measure: Measure


@dataclass(frozen=True, slots=True)
class Reader:
    """Where an answer is shown."""

    channel: Channel
    message: Message
    room: Room


class Stream(Protocol):
    """One answer while it is written. `running` surrounds its turn; then comes `finish`, once, or `abandon`."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Show in the background what `show` is given."""
        ...

    def show(self, delta: Delta) -> None:
        """Take the next part; never waits and never raises."""
        ...

    async def finish(self, text: str) -> Sequence[str]:
        """End the preview; returns the texts that make the answer complete in the chat, in their order."""
        ...

    @property
    def seals(self) -> bool:
        """Whether `seal` is to turn the preview into the first of those texts."""
        ...

    async def seal(self) -> str | None:
        """Turn the preview into the first of those texts; the platform's id, or None when it has to be sent."""
        ...

    @property
    def doubtful(self) -> bool:
        """Whether a part of the answer may stand in the chat where nobody can remove it."""
        ...

    async def sweep(self) -> None:
        """Remove what did not become a part of the answer. Comes after the reply, since it may be slow."""
        ...

    async def abandon(self) -> None:
        """There is no answer: remove what stood for one."""
        ...

    def stop(self) -> None:
        """Wait for nothing any more; a call on the wire is awaited."""
        ...

    def leave(self) -> None:
        """End at once and leave the chat as it is; the next start tidies up."""
        ...


class Items:
    """A model's texts in one turn; each but the last was followed by a tool call. One of them is shown at a time."""

    def __init__(self) -> None:
        self._texts = [""]
        self._fresh: list[str] = []  # of the last text, joined when it is asked for: each word is copied once
        self._at = 0

    @property
    def text(self) -> str:
        """What is known so far of the text that is shown now."""
        self._join()
        return self._texts[self._at]

    @property
    def is_last(self) -> bool:
        """Whether the text that is shown now may still grow into the answer."""
        return self._at == len(self._texts) - 1

    def add(self, delta: Delta) -> bool:
        """Take the next part; returns whether it says anything new."""
        match delta:
            case TextDelta(text):
                fresh = text if self._texts[-1] or self._fresh else text.lstrip()
                if fresh:
                    self._fresh.append(fresh)
            case ToolCallDelta() if self._texts[-1] or self._fresh:
                self._join()
                self._texts.append("")
            case _:
                return False
        return True

    def go_on(self) -> None:
        self._at += 1

    def _join(self) -> None:
        if self._fresh:
            self._texts[-1] += "".join(self._fresh)
            self._fresh.clear()


class Silence:
    """Nothing is shown before the end."""

    doubtful = False
    seals = False

    def __init__(self, room: Room) -> None:
        self._room = room

    def running(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    def show(self, delta: Delta) -> None: ...

    async def finish(self, text: str) -> Sequence[str]:
        return split(text, self._room.limit, self._room.measure)

    async def seal(self) -> str | None:
        return None

    async def sweep(self) -> None: ...

    async def abandon(self) -> None: ...

    def stop(self) -> None: ...

    def leave(self) -> None: ...


def resolve_tier(channel: Channel, stated: StreamTier | None) -> StreamTier:
    """Decide how a channel streams. Unless config says otherwise, a channel with drafts uses them and any other one
    sends its answer whole; a draft where the channel has none is no streaming.
    """
    if channel.abilities.drafts is None:
        return "off" if stated in (None, "draft") else stated
    return stated or "draft"
