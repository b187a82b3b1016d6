"""Conversation history: served from memory, written through to SQLite, found again after a restart.

The runner asks for it at the start of a turn and adds to it; the socket shows it; `/new` clears it. A change is
in memory when its call returns and on disk soon after; no turn waits for the disk except to load a conversation
once. `/new` opens a new session of the same conversation: old rows stay on disk, and a turn that began in the
old session can no longer write into the new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile

from fermix.agent.markers import DIED
from fermix.agent.memory.history import Entry, entries, is_dangling, sendable
from fermix.agent.memory.history_writer import OWNER_ID, HistoryWriter, Line
from fermix.agent.memory.rows import Checkpoint, Columns, Note, Row, Stored, cleaned, decode, encode, moment, stamp
from fermix.agent.model import AssistantMessage, ChatMessage, UserMessage
from fermix.clock import Clock
from fermix.errors import LimitReached, Unusable
from fermix.events import ConversationChanged, Events
from fermix.home import AGENT_ID
from fermix.message import ConversationKey
from fermix.store import Connection, Database, SqlValue
from fermix.supervisor import OURS, Supervisor

log = logging.getLogger(__name__)

MOST_ROWS = 1_000  # of one conversation: what a restart reads, and what memory is cut to at twice as many
MOST_CHARACTERS = 4_000_000  # of all conversations in memory, about as many bytes; the idle ones go first
ROW_CHARACTERS = 500  # what one row costs beside its text
TITLE_CHARACTERS = 80
MOST_LISTED = 200

_CONVERSATION = "agent_id = ? AND owner_id = ? AND channel = ? AND chat_id = ? AND thread_scope = ?"
_ROWS = (
    "SELECT id, session, ledger_id, sender, role, kind, content, metadata_json, created_at FROM messages"
    f" WHERE {_CONVERSATION} AND session = (SELECT MAX(session) FROM messages WHERE {_CONVERSATION})"
)
_LOAD = f"{_ROWS} AND kind IN ('chat_message', 'note', 'fence', 'checkpoint_summary') ORDER BY id DESC LIMIT ?"
_LOAD_CHECKPOINT = f"{_ROWS} AND kind = 'checkpoint_summary' ORDER BY id DESC LIMIT 1"
_SHOWN = "kind = 'chat_message' AND role != 'tool' AND content != ''"  # as the index messages_shown has it
_HERE = "m.agent_id = ?1 AND m.owner_id = ?2 AND m.channel = ?3"
_LIST = f"""
WITH RECURSIVE chats (chat_id) AS (
    SELECT MIN(chat_id) FROM messages AS m WHERE {_HERE}
    UNION ALL
    SELECT (SELECT MIN(m.chat_id) FROM messages AS m WHERE {_HERE} AND m.chat_id > c.chat_id)
    FROM chats AS c WHERE c.chat_id IS NOT NULL
), threads (chat_id, thread_scope) AS (
    SELECT c.chat_id, (SELECT MIN(m.thread_scope) FROM messages AS m WHERE {_HERE} AND m.chat_id = c.chat_id)
    FROM chats AS c WHERE c.chat_id IS NOT NULL
    UNION ALL
    SELECT t.chat_id, (
        SELECT MIN(m.thread_scope) FROM messages AS m
        WHERE {_HERE} AND m.chat_id = t.chat_id AND m.thread_scope > t.thread_scope
    ) FROM threads AS t WHERE t.thread_scope IS NOT NULL
), latest AS (
    SELECT t.chat_id, t.thread_scope, (
        SELECT MAX(m.session) FROM messages AS m
        WHERE {_HERE} AND m.chat_id = t.chat_id AND m.thread_scope = t.thread_scope
    ) AS session FROM threads AS t WHERE t.thread_scope IS NOT NULL
), newest AS (
    SELECT * FROM (
        SELECT l.*, (
            SELECT MAX(m.id) FROM messages AS m WHERE {_HERE} AND m.chat_id = l.chat_id
            AND m.thread_scope = l.thread_scope AND m.session = l.session AND {_SHOWN}
        ) AS last_id FROM latest AS l
    ) WHERE last_id IS NOT NULL ORDER BY last_id DESC LIMIT ?4
)
SELECT ?3, n.chat_id, n.thread_scope, COALESCE((
    SELECT m.content FROM messages AS m WHERE {_HERE} AND m.chat_id = n.chat_id
    AND m.thread_scope = n.thread_scope AND m.session = n.session AND {_SHOWN} AND m.role = 'user' ORDER BY m.id LIMIT 1
), ''), (SELECT created_at FROM messages WHERE id = n.last_id), (
    SELECT COUNT(*) FROM messages AS m WHERE {_HERE} AND m.chat_id = n.chat_id
    AND m.thread_scope = n.thread_scope AND m.session = n.session AND {_SHOWN}
) FROM newest AS n ORDER BY n.last_id DESC
"""
"""Goes from conversation to conversation by the index instead of through their rows; ?4 is how many are wanted."""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """One line of a list. `title` is the first line of the first user text; `messages` counts both sides."""

    key: ConversationKey
    title: str
    last_at: datetime
    messages: int


class Conversations:
    """Every conversation's history. Made by `open`, one per daemon; used from the loop's thread only."""

    def __init__(self, database: Database, clock: Clock, events: Events, writer: HistoryWriter, last_id: int) -> None:
        self._database = database
        self._clock = clock
        self._events = events
        self._writer = writer
        self._restored_to = last_id
        self._hot: OrderedDict[ConversationKey, _Hot] = OrderedDict()
        self._characters = 0
        self._loading = asyncio.Lock()
        self._expected: frozenset[int] = frozenset()

    @classmethod
    @asynccontextmanager
    async def open(cls, database: Database, clock: Clock, events: Events) -> AsyncGenerator[Conversations]:
        """Start the writer; on the way out wait, bounded, until what was added is on disk."""
        last_id = await database.run(_last_id)
        writer = HistoryWriter(database, clock, events)
        async with Supervisor([writer], OURS, events, clock):
            try:
                yield cls(database, clock, events, writer, last_id)
            finally:
                try:
                    await writer.flush()
                except LimitReached as error:
                    log.error("closing: %s", error)  # noqa: TRY400 - our own bound, nothing to trace

    def expect(self, ledger_ids: Iterable[int]) -> None:
        """Leave the questions of these messages open: their turns of an earlier process are taken up again."""
        self._expected = frozenset(ledger_ids)

    def when_written(self, tell: Callable[[], None]) -> None:
        """Call `tell` whenever rows have come to disk."""
        self._writer.written = tell

    async def history(self, key: ConversationKey, *, before: int | None = None) -> tuple[ChatMessage, ...]:
        """Return the conversation so far, closed and valid for every provider. To be asked before the new user row.

        `before` is the ledger id of a turn that may run again: what it stored the first time is left out.
        Raises: NeedsOperator or Unavailable when the database cannot be read; broken is never taken for empty.
        """
        rows = (await self._loaded(key)).rows
        return sendable(rows if before is None else [*takewhile(lambda row: row.ledger_id != before, rows)])

    async def version(self, key: ConversationKey) -> int:
        """Return the number that each `clear` raises; given to `append`, it keeps late rows out."""
        return (await self._loaded(key)).session

    async def entries(self, key: ConversationKey, limit: int) -> tuple[Entry, ...]:
        """Return the last `limit` lines for a screen, oldest first."""
        lines = entries((await self._loaded(key)).rows)
        return lines[max(0, len(lines) - limit) :]

    async def append(
        self,
        key: ConversationKey,
        *items: Stored,
        sender: str = "",
        model: str = "",
        guest: bool = False,
        outside: bool = False,
        version: int | None = None,
        ledger_id: int | None = None,
    ) -> bool:
        """Add items in order; blank ones and pictures are left out. `model` goes with what the assistant said.
        A question or an answer that is stored already for the same `ledger_id` is left out too.

        False, and nothing added, when `version` is given and no longer the current one.
        """
        hot = await self._loaded(key)
        if version is not None and version != hot.session:
            log.info("late rows of a cleared conversation dropped: %s", key.channel)
            return False
        at = moment(self._clock.now())
        stored = _stored_kinds(hot.rows, ledger_id)
        for item in filter(None, map(cleaned, items)):
            spoke = model if isinstance(item, AssistantMessage) else ""
            if _kind(item) not in stored:
                self._keep(key, hot, Row(item, at, sender, spoke, guest, ledger_id, outside))
        self._make_room()
        return True

    async def rows(self, key: ConversationKey) -> tuple[Row, ...]:
        """Return what the history is made of; given back to `sum_up`, they say what a summary is to stand for."""
        return tuple((await self._loaded(key)).rows)

    async def sum_up(
        self, key: ConversationKey, old: Sequence[Row], text: str, *, outside: bool, model: str, version: int
    ) -> bool:
        """Let a summary stand for these first rows of the history; they stay on disk. One row tells it all, so that
        it is there or is not.

        False, and nothing changed, when the history does not begin with them any more.
        """
        hot = await self._loaded(key)
        if version != hot.session or len(hot.rows) < len(old) or any(map(_differ, old, hot.rows)):
            log.info("a summary of a conversation that has changed was dropped: %s", key.channel)
            return False
        kept = hot.rows[len(old) :]
        checkpoint = cleaned(Checkpoint(text, _count(old), _beginning(old), len(kept), outside))
        if checkpoint is None:
            return False
        row = Row(checkpoint, moment(self._clock.now()), model=model)
        self._characters += hot.become([row, *kept])
        self._writer.put(Line(key, hot.session, encode(row)))
        self._events.emit(ConversationChanged(key))
        return True

    async def session_of(self, ledger_id: int) -> int | None:
        """Return the version under which something of this message is on disk, None when nothing is."""
        rows = await self._database.read("SELECT MAX(session) FROM messages WHERE ledger_id = ?", (ledger_id,))
        session = rows[0][0]
        return session if isinstance(session, int) else None

    async def close_dangling(self, key: ConversationKey, note: str, told: str = "") -> None:
        """End a turn that has no answer with a note, so that no later turn answers it; else do nothing.

        `told` is what the sender read instead, for screens.
        """
        if is_dangling((await self._loaded(key)).rows):
            await self.append(key, Note(note, told))

    async def clear(self, key: ConversationKey) -> None:
        """Begin anew: what was said before is no longer part of the history, here and after a restart."""
        old = await self._loaded(key)
        new = _Hot(old.session + 1)
        self._hot[key] = new
        self._characters += new.characters - old.characters
        fence = Columns("", "system", "fence", "", "{}", stamp(moment(self._clock.now())))
        self._writer.put(Line(key, new.session, fence))
        self._events.emit(ConversationChanged(key))

    async def listing(self, channel: str) -> tuple[ConversationSummary, ...]:
        """Return the conversations of a channel that hold anything, the newest first, at most 200.

        Raises: LimitReached when rows wait for the disk for too long, NeedsOperator when it cannot be read.
        """
        await self._writer.flush()
        rows = await self._database.read(_LIST, (AGENT_ID, OWNER_ID, channel, MOST_LISTED))
        return tuple(_summary(row) for row in rows)

    async def flush(self) -> None:
        """Wait until every row is on disk or given up. Raises: LimitReached after five seconds."""
        await self._writer.flush()

    async def _loaded(self, key: ConversationKey) -> _Hot:
        """Return what memory has, reading it from disk when this conversation was not in use."""
        if key not in self._hot:
            async with self._loading:
                if key not in self._hot:
                    await self._load(key)
        self._hot.move_to_end(key)
        return self._hot[key]

    async def _load(self, key: ConversationKey) -> None:
        parameters = (AGENT_ID, OWNER_ID, *key)
        stored = await self._database.read(_LOAD, (*parameters, *parameters, MOST_ROWS))
        hot = _Hot()
        for row in reversed(stored):
            _restore(hot, row)
        if len(stored) == MOST_ROWS and not hot.begins_with_summary:
            for row in await self._database.read(_LOAD_CHECKPOINT, (*parameters, *parameters)):
                _restore_before(hot, row)
        self._hot[key] = hot
        self._characters += hot.characters
        newest = stored[0][0] if stored else None
        old = isinstance(newest, int) and newest <= self._restored_to
        if old and is_dangling(hot.rows) and hot.rows[-1].ledger_id not in self._expected:
            self._keep(key, hot, Row(Note(DIED), moment(self._clock.now())))
        self._make_room()

    def _keep(self, key: ConversationKey, hot: _Hot, row: Row) -> None:
        columns = encode(row)
        self._characters += hot.add(row, columns)
        self._writer.put(Line(key, hot.session, columns))

    def _make_room(self) -> None:
        """Let the longest unused conversations go, never the last used one nor what is not on disk yet."""
        if self._characters <= MOST_CHARACTERS:
            return
        for key in list(self._hot)[:-1]:
            if self._characters <= MOST_CHARACTERS:
                return
            if not self._writer.holds(key):
                self._characters -= self._hot.pop(key).characters


@dataclass(slots=True)
class _Hot:
    """A conversation in memory; `characters` is what it weighs there."""

    session: int = 0
    rows: list[Row] = field(default_factory=lambda: list[Row]())
    characters: int = ROW_CHARACTERS

    def add(self, row: Row, columns: Columns) -> int:
        """Take a row and return the growth, which is negative when old rows went."""
        before = self.characters
        self.rows.append(row)
        self.characters += _weight(columns)
        if len(self.rows) >= 2 * MOST_ROWS:
            summary = self.rows[:1] if self.begins_with_summary else []
            self.become([*summary, *self.rows[-MOST_ROWS:]])
        return self.characters - before

    @property
    def begins_with_summary(self) -> bool:
        return bool(self.rows) and isinstance(self.rows[0].item, Checkpoint)

    def become(self, rows: list[Row]) -> int:
        """Take other rows for these; returns the growth."""
        before, self.rows = self.characters, rows
        self.characters = ROW_CHARACTERS + sum(_weight(encode(row)) for row in rows)
        return self.characters - before


def _stored_kinds(rows: Sequence[Row], ledger_id: int | None) -> frozenset[str]:
    """Name what is there of a message that may be stored a second time."""
    if ledger_id is None:
        return frozenset()
    return frozenset(_kind(row.item) for row in rows if row.ledger_id == ledger_id) - {""}


def _kind(item: Stored) -> str:
    match item:
        case UserMessage():
            return "question"
        case AssistantMessage(tool_calls=()):
            return "answer"
        case _:
            return ""


def _weight(columns: Columns) -> int:
    return ROW_CHARACTERS + len(columns.content) + len(columns.metadata_json)


def _restore(hot: _Hot, stored: Sequence[SqlValue]) -> None:
    """Add one row of the query; a fence only says the session, an unreadable row is left out."""
    number, session, ledger_id, *texts = stored
    columns = Columns(*map(str, texts), ledger_id=ledger_id if isinstance(ledger_id, int) else None)
    hot.session = session if isinstance(session, int) else 0
    if columns.kind == "fence":
        return
    try:
        row = decode(columns)
    except Unusable as error:
        log.warning("history row %s left out: %s", number, error)
        return
    if isinstance(row.item, Checkpoint):
        hot.become([row, *hot.rows[max(0, len(hot.rows) - row.item.kept) :]])
    else:
        hot.add(row, columns)


def _restore_before(hot: _Hot, stored: Sequence[SqlValue]) -> None:
    """Put the summary before the newest rows, when so much was said since that it is not among them."""
    alone = _Hot()
    _restore(alone, stored)
    hot.become([*alone.rows, *hot.rows])


def _differ(one: Row, other: Row) -> bool:
    return one is not other


def _count(rows: Sequence[Row]) -> int:
    """Count the messages that rows stand for."""
    return sum(row.item.covered if isinstance(row.item, Checkpoint) else 1 for row in rows)


def _beginning(rows: Sequence[Row]) -> str:
    """Say since when."""
    first = rows[0].item
    return first.since if isinstance(first, Checkpoint) else stamp(rows[0].at)


def _summary(row: Sequence[SqlValue]) -> ConversationSummary:
    channel, chat_id, thread, title, last_at, messages = map(str, row)
    line = " ".join(title.strip().partition("\n")[0].split())[:TITLE_CHARACTERS]  # an attached file's text follows
    return ConversationSummary(
        ConversationKey(channel, chat_id, thread), line, datetime.fromisoformat(last_at), int(messages)
    )


def _last_id(connection: Connection) -> int:
    (newest,) = connection.execute("SELECT COALESCE(MAX(id), 0) FROM messages").fetchone()
    return int(newest)
