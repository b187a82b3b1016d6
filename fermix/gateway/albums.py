"""Make one message of an album whose platform sends each picture as a message of its own.

Every part is authorized, written down and acknowledged like any message; then the gateway asks `take`. The first part
of an album takes its place in the lane and waits in `whole` until the platform has been quiet for a while; the others
join it and need no place. No poll and no request waits for that. Whatever was released is marked as merged in the
ledger, in one transaction, so that a start which finds parts has found an album that was still open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fermix.clock import Clock
from fermix.events import Events, MessageSettled
from fermix.gateway.authorize import Authorization, lesser
from fermix.gateway.ledger import Entry, Ledger
from fermix.message import ConversationKey, Message

log = logging.getLogger(__name__)

MOST_PARTS = 10  # Telegram's own limit of an album; also bounds how long an album can grow
MOST_OPEN = 200  # albums at one time; each holds a place in a lane and a timer
PART_KINDS = frozenset({"message", "file"})  # an edit or a button belongs to an album, but is no picture of it

Key = tuple[ConversationKey, str, str]


@dataclass(frozen=True, slots=True)
class Part:
    """A message that is written down."""

    message: Message
    sender: Authorization
    entry: Entry


class Album:
    """The parts of one album as far as they came; never empty."""

    def __init__(self, first: Part, quiet_s: float, clock: Clock) -> None:
        self.parts = [first]
        self._quiet_s = quiet_s
        self._clock = clock
        self._due_at = clock.monotonic() + quiet_s
        self._waiting: asyncio.Task[None] | None = None
        self._released = False

    @property
    def first(self) -> Part:
        return self.parts[0]

    def add(self, part: Part) -> None:
        """Take one more; the wait begins anew."""
        self.parts.append(part)
        self._due_at = self._clock.monotonic() + self._quiet_s

    def release(self) -> None:
        """End the wait."""
        self._released = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def quiet(self) -> None:
        """Wait until no part has come for a while, or until the album is released."""
        if not self._released:
            async with asyncio.TaskGroup() as group:
                self._waiting = group.create_task(self._until_due(), name=f"album {self.first.message.id}")

    async def _until_due(self) -> None:
        while (left_s := self._due_at - self._clock.monotonic()) > 0:
            await self._clock.sleep(left_s)


@dataclass(frozen=True, slots=True)
class Held:
    """An album that waits, as a stop finds it in its lane. `drop_first` settles the first part."""

    albums: Albums
    album: Album
    drop_first: Callable[[], None]

    def drop(self) -> None:
        self.drop_first()
        self.albums.drop(self.album)


class Albums:
    """The open albums of all channels. One per gateway."""

    def __init__(self, ledger: Ledger, events: Events, clock: Clock) -> None:
        self._ledger = ledger
        self._events = events
        self._clock = clock
        self._quiet_s: Mapping[str, float] = {}
        self._open: dict[Key, Album] = {}
        self._full = False

    def use(self, quiet_s: Mapping[str, float]) -> None:
        """Take how long each channel's albums wait, from the next album on; a channel without a time has none."""
        self._quiet_s = quiet_s

    def take(self, part: Part) -> Album | None:
        """Return the album that a message belongs to, None when it goes alone.

        The one that comes first waits for the others in `whole`. A message that is no part lets go what its sender
        has begun in this conversation, so that a text behind the pictures does not overtake them.
        """
        key = _key_of(part.message)
        if key is None:
            self._release_before(part.message)
            return None
        album = self._open.get(key)
        return self._begin(key, part) if album is None else self._add(album, part)

    async def whole(self, album: Album) -> Part:
        """Wait for the rest of an album and make it one message, which the first part's row carries from now on."""
        await album.quiet()
        self._close(album)
        first, *others = album.parts
        sender = lesser(*(part.sender for part in album.parts))
        whole = Part(_joined([part.message for part in album.parts]), sender, first.entry)
        rows = [part.entry for part in others]
        self._ledger.merge(first.entry, whole.message, rows, trust=sender.trust, commands=sender.commands)
        self._tell(others, "handled")
        return whole

    def drop(self, album: Album) -> None:
        """Give up an album that was stopped: what joined it gets its last word here, the first part elsewhere."""
        self._close(album)
        others = album.parts[1:]
        for part in others:
            self._ledger.settle(part.entry, "stopped")
        self._tell(others, "cancelled")

    def _begin(self, key: Key, part: Part) -> Album | None:
        quiet_s = self._quiet_s.get(part.message.channel, 0.0)
        if quiet_s <= 0 or not self._has_room():
            return None
        album = self._open[key] = Album(part, quiet_s, self._clock)
        return album

    def _has_room(self) -> bool:
        full = len(self._open) >= MOST_OPEN
        if full and not self._full:
            log.warning("%d albums are open at once: the parts of further ones are answered one by one", MOST_OPEN)
        self._full = full
        return not full

    def _add(self, album: Album, part: Part) -> Album:
        album.add(part)
        if len(album.parts) == MOST_PARTS:
            self._release(album)
        return album

    def _release_before(self, message: Message) -> None:
        sender = message.sender.id or ""
        for (conversation, owner, _), album in tuple(self._open.items()):
            if (conversation, owner) == (message.key, sender):
                self._release(album)

    def _release(self, album: Album) -> None:
        self._close(album)
        album.release()

    def _close(self, album: Album) -> None:
        """Let no further part in; the next one with its id begins another album."""
        key = _key_of(album.first.message)
        if key is not None and self._open.get(key) is album:
            del self._open[key]

    def _tell(self, parts: Sequence[Part], outcome: Literal["handled", "cancelled"]) -> None:
        """Say the last word on each part: every message that was announced as received gets one, as every row does."""
        for part in parts:
            self._events.emit(MessageSettled(part.message.key, part.message.id, outcome, 0.0))


def _key_of(message: Message) -> Key | None:
    if message.album is None or message.kind not in PART_KINDS:
        return None
    return message.key, message.sender.id or "", message.album


def _joined(parts: Sequence[Message]) -> Message:
    """Make one message: all captions, all files, everything else as in the first part. It is no part any more."""
    return replace(
        parts[0],
        text="\n".join(part.text for part in parts if part.text.strip()),
        attachments=tuple(file for part in parts for file in part.attachments),
        media=tuple(file for part in parts for file in part.media),
        album=None,
    )
