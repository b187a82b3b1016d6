"""An answer that comes in several messages while it is written, for channels that cannot edit. Made by the replier.

A block ends between paragraphs where it can, never inside code, and holds at most 1,200 characters. What must stay
true: what was posted is never posted again, unless the answer turns out to be another text; then it comes whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from itertools import islice

from fermix.agent.model import Delta
from fermix.clock import Clock
from fermix.gateway.background import background
from fermix.gateway.stream import Items, Post, Room
from fermix.gateway.text import pieces

log = logging.getLogger(__name__)

BLOCK_CHARS = 1_200
TICK_S = 1.0  # between two blocks, and without a new word until a shorter one goes out


class BlockStream:
    """A `Stream` that posts."""

    doubtful = False
    seals = False

    def __init__(self, room: Room, clock: Clock, post: Post) -> None:
        self._room = room
        self._clock = clock
        self._post = post
        self._items = Items()
        self._offset = 0  # how much of the item was posted
        self._frozen = False
        self._news = asyncio.Event()
        self._writing = asyncio.Lock()

    def running(self) -> AbstractAsyncContextManager[None]:
        return background(self._pump(), "blocks")

    def show(self, delta: Delta) -> None:
        if self._items.add(delta):
            self._news.set()

    async def finish(self, text: str) -> Sequence[str]:
        async with self._writing:
            self._frozen = True
        goes_on = self._items.is_last and text.startswith(self._items.text[: self._offset])
        start = self._offset if goes_on else 0
        found = pieces(text, self._room.limit, self._room.measure, start)
        return [piece.text for piece in found if piece.text.strip()]

    async def seal(self) -> str | None:
        return None

    async def sweep(self) -> None: ...

    async def abandon(self) -> None:
        async with self._writing:
            self._frozen = True

    def stop(self) -> None:
        self._frozen = True

    def leave(self) -> None:
        self._frozen = True

    async def _pump(self) -> None:
        while not self._frozen:
            await self._news.wait()
            self._news.clear()
            await self._clock.sleep(TICK_S)
            async with self._writing:
                if not self._frozen and await self._guarded_step(idle=not self._news.is_set()):
                    self._news.set()

    async def _guarded_step(self, *, idle: bool) -> bool:
        try:
            return await self._step(idle=idle)
        except Exception:
            log.exception("an answer can no longer be shown in blocks")
            self._frozen = True
            return False

    async def _step(self, *, idle: bool) -> bool:
        """Post at most one block; returns whether there is more to look at."""
        text, is_over = self._items.text, not self._items.is_last
        limit = BLOCK_CHARS if self._room.limit is None else min(BLOCK_CHARS, self._room.limit)
        ahead = list(islice(pieces(text, limit, self._size, self._offset), 2))
        if not ahead:
            return is_over and self._next_item()
        block = ahead[0]
        is_whole = block.text.strip() == block.source.strip()  # no code is open at its end
        if len(ahead) == 1 and not is_over and not (idle and is_whole):
            return False
        if block.text.strip() and not await self._post(block.text.rstrip()):
            self._frozen = True
            return False
        self._offset += len(block.source)
        return True

    def _size(self, text: str) -> int:
        return max(len(text), self._room.measure(text))

    def _next_item(self) -> bool:
        self._items.go_on()
        self._offset = 0
        return True
