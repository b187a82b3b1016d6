"""Time that moves only when a test says so."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


class ManualClock:
    """A `Clock`. With `moves_itself`, a sleep returns at once and time jumps by as much; `sleeps` lists them all."""

    def __init__(self, *, moves_itself: bool = False) -> None:
        self._moves_itself = moves_itself
        self._passed_s = 0.0
        self._waiting: list[tuple[float, asyncio.Event]] = []
        self.sleeps: list[float] = []
        self._slept = asyncio.Event()

    def now(self) -> datetime:
        return START + timedelta(seconds=self._passed_s)

    def monotonic(self) -> float:
        return self._passed_s

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        if self._moves_itself:
            self.advance(seconds)
            await asyncio.sleep(0)
            return
        due = asyncio.Event()
        entry = (self._passed_s + seconds, due)
        self._waiting.append(entry)
        self._slept.set()
        try:
            await due.wait()
        finally:
            self._waiting.remove(entry)

    async def until_asleep(self) -> None:
        """Wait until somebody sleeps whom no `advance` has woken yet."""
        async with asyncio.timeout(5):
            while all(due.is_set() for _, due in self._waiting):
                self._slept.clear()
                await self._slept.wait()

    def advance(self, seconds: float) -> None:
        """Let time pass and wake who has waited long enough."""
        self._passed_s += seconds
        for due_at, due in self._waiting:
            if due_at <= self._passed_s:
                due.set()
