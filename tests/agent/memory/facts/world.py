"""Facts over a real database file that can be opened again, as after a restart."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from fermix.agent.memory.facts import Facts, Origin, admitted
from fermix.agent.memory.facts.fact import Draft
from fermix.home import Home
from fermix.message import ConversationKey
from fermix.store import Database
from fermix.trust import Trust
from fermix.workers import Workers
from tests.fakes.clock import ManualClock

OWNER = Origin("u1", Trust.OPERATOR, name="telegram", message_id="m7", ledger_id=3, session="s", run="t1")
HERE = ConversationKey("telegram", "c1", "root")


class World:
    def __init__(self, root: Path) -> None:
        self.home = Home(root / "home")
        self.home.prepare()
        self.clock = ManualClock()
        self.changes = 0

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Facts]:
        workers = Workers()
        try:
            async with asyncio.timeout(30), Database.open(self.home.database) as database:
                yield Facts(database, self.home, workers, self.clock, self._changed)
        finally:
            workers.close()

    def _changed(self) -> None:
        self.changes += 1

    def file(self, name: str = "USER.md") -> Path:
        return self.home.memory / name

    def text(self, name: str = "USER.md") -> str:
        return self.file(name).read_text(encoding="utf-8")

    def execute(self, statement: str, *parameters: object) -> list[tuple]:
        with closing(sqlite3.connect(self.home.database)) as connection, connection:
            return connection.execute(statement, parameters).fetchall()


def draft(category: str, key: str, value: str, conversation: ConversationKey | None = None) -> Draft:
    return admitted(category, key, value, conversation=conversation, trust=Trust.OPERATOR)
