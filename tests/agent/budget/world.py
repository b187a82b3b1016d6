"""A budget over the real file, a clock that is set by hand, and calls to book."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from fermix.agent.budget import Budget, BudgetSettings, Call, Price
from fermix.agent.model import Purpose
from fermix.message import ConversationKey
from fermix.store import Database

KEY = ConversationKey("telegram", "42", "root")
DEAR = Price(1.0, 10.0)
ZONE = "Europe/Berlin"


class SetClock:
    """A clock that shows what it is set to."""

    def __init__(self, at: str) -> None:
        self.set(at)

    def set(self, at: str) -> None:
        self._at = datetime.fromisoformat(at)

    def now(self) -> datetime:
        return self._at

    def monotonic(self) -> float:
        return self._at.timestamp()

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


def call(
    prompt: int = 1_000,
    *,
    turn: str = "t1",
    answer: int | None = 2_000,
    price: Price | None = DEAR,
    purpose: Purpose = "turn",
    model: str = "m",
) -> Call:
    return Call("p", model, purpose, turn, KEY, prompt, 100_000, answer, price)


@asynccontextmanager
async def opened(
    folder: Path, clock: SetClock, settings: BudgetSettings | None = None, zone: str | None = ZONE
) -> AsyncGenerator[tuple[Budget, Database]]:
    async with Database.open(folder / "memory.db") as database:
        yield await Budget.open(database, clock, settings or BudgetSettings(), zone), database


async def rows(database: Database, columns: str) -> list[tuple[object, ...]]:
    await database.run(lambda _: None)  # behind all that was posted
    return [*await database.read(f"SELECT {columns} FROM usage ORDER BY id")]
