"""A home in which a million messages were said: a thousand conversations over a year, made by one statement."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from fermix.store import Database

MESSAGES = 1_000_000
CONVERSATIONS = 1_000
FILL = """
WITH RECURSIVE said (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM said WHERE n + 1 < ?1)
INSERT INTO messages
    (agent_id, owner_id, channel, chat_id, thread_scope, session, sender, role, kind, content, created_at)
SELECT 'main', 'default', 'cli', 'c' || (n % ?2), 'root', 0, 'me', IIF((n / ?2) % 2, 'assistant', 'user'),
    'chat_message',
    'number ' || n || ' of what a person and an agent say to each other on a day like ' || (n * 7919 % 100003),
    strftime('%Y-%m-%dT%H:%M:%fZ', 1700000000 + n * 30, 'unixepoch')
FROM said
"""


def fill(path: Path, messages: int = MESSAGES, conversations: int = CONVERSATIONS) -> None:
    """Make a database of ours and put the messages into it. Takes about 15 s for a million."""
    asyncio.run(_make(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(FILL, (messages, conversations))


async def _make(path: Path) -> None:
    async with Database.open(path):
        pass
