"""What was accepted and what was answered, on disk: nothing accepted is lost, no reply is silently sent twice.

`accept` writes a message before its platform is told "received". Three writes are waited for and survive a power
cut: the accepted message, a reply before it is sent, and the mark of a first tool with an effect. All others are
queued behind them and may be lost with the process: what is then missing is what `recovery.py` knows how to find out.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cache
from typing import Literal

from pydantic import TypeAdapter

from fermix.agent.model import valid_text
from fermix.clock import Clock
from fermix.gateway.idempotency import KEPT, SeenKeys
from fermix.message import Message
from fermix.store import Connection, Database, SqlValue
from fermix.trust import Trust

log = logging.getLogger(__name__)

Outcome = Literal["answered", "handled", "stopped", "failed", "refused", "excused"]
State = Literal["unsent", "in_flight", "sent", "failed"]

UNKNOWN_DRAFT = "?"  # before the key of a draft that may have been opened under an id that nobody wrote down
PURGED_AT_ONCE = 20  # more than one accept adds, so that old rows never gather

Row = tuple[SqlValue, ...]

_ACCEPT = (
    "INSERT INTO inbox (channel, message_id, trust, commands, message_json, media, accepted_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (channel, message_id) DO NOTHING RETURNING id"
)
_PURGE_KEY = "DELETE FROM inbox WHERE channel = ? AND message_id = ? AND accepted_at <= ? AND outcome IS NOT NULL"
_PURGE_OLD = (
    "DELETE FROM inbox WHERE id IN (SELECT id FROM inbox WHERE accepted_at <= ? AND outcome IS NOT NULL"
    f" ORDER BY accepted_at LIMIT {PURGED_AT_ONCE})"
)
_OUTGOING = "INSERT INTO outbox (entry_id, key, text, model, settles, state) VALUES (?, ?, ?, ?, ?, ?) RETURNING id"
# A delivered answer belongs into the history; the writer of the history may have died before it wrote it.
_UNFINISHED = """
SELECT id, trust, message_json, commands, media, accepted_at, begun, effect, stopped, draft, answer, model, outcome
FROM inbox
WHERE outcome IS NULL OR (
    outcome = 'answered'
    AND NOT EXISTS (SELECT 1 FROM messages WHERE ledger_id = inbox.id AND role = 'assistant'
        AND json_extract(metadata_json, '$.tool_calls') IS NULL)
    AND NOT EXISTS (SELECT 1 FROM outbox WHERE entry_id = inbox.id AND settles = 'answered' AND state != 'sent')
) ORDER BY id
"""
_SENT = "UPDATE outbox SET state = 'sent', platform_id = ? WHERE id = ?"
_OUTBOX = "SELECT id, key, text, model, settles, state, marked FROM outbox WHERE entry_id = ? ORDER BY id"


@dataclass(frozen=True, slots=True)
class Entry:
    """The row of one accepted message. Ids rise and are never given twice."""

    id: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The row of one send. `key` is what the platform gets to recognise a repetition; `settles` is the outcome that
    this reply gives its message; `marked` says that it was sent again as a possible duplicate.
    """

    id: int
    key: str
    text: str
    model: str | None
    settles: Outcome | None
    state: State
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A message without its last word, as a start finds it. `trust` and `commands` are what its sender was then;
    `media` says that bytes came with it, which are not kept; `begun` counts its turns; `outcome` is "answered" when
    only the history lacks the answer.
    """

    entry: Entry
    message: Message
    trust: Trust
    commands: bool
    media: bool
    accepted_at: datetime
    begun: int
    effect: str | None
    stopped: bool
    draft: str | None
    answer: str | None
    model: str | None
    outcome: Outcome | None
    replies: tuple[Outgoing, ...]

    @property
    def untouched(self) -> bool:
        """Whether it is as it was accepted: nothing was done for it, and nothing of it is lost."""
        return not (self.begun or self.stopped or self.replies or self.media or self.outcome)

    @property
    def doubtful(self) -> bool:
        """Whether a draft may stand in the chat under an id that nobody knows."""
        return self.draft is not None and self.draft.startswith(UNKNOWN_DRAFT)


_ROW_FIELDS = (
    "trust", "commands", "media", "accepted_at", "begun", "effect", "stopped", "draft", "answer", "model", "outcome",
)  # fmt: skip
_REPLY_FIELDS = ("id", "key", "text", "model", "settles", "state", "marked")


class Ledger:
    """One per daemon; used from the loop's thread only."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._seen = SeenKeys()

    async def accept(self, message: Message, trust: Trust, *, commands: bool = False) -> Entry | None:
        """Write a message down; None when it was accepted before, within a day. `commands` as in `Authorization`.

        Key and row are one insert: when this raises, neither exists and the platform's retry is welcome.
        Raises: NeedsOperator or Unavailable when it cannot be written.
        """
        now = self._clock.now()
        key = (message.channel, message.id)
        if self._seen.has(key, now):
            return None
        row = (*key, trust.value, commands, _encoded(message), bool(message.media), _stamp(now))
        oldest = _stamp(now - KEPT)

        def insert(connection: Connection) -> int | None:
            connection.execute(_PURGE_KEY, (*key, oldest))
            connection.execute(_PURGE_OLD, (oldest,))
            found = connection.execute(_ACCEPT, row).fetchone()
            return None if found is None else int(found[0])

        number = await self._database.run(insert, durable=True)
        if number is None:
            return None
        self._seen.add(key, now)
        return Entry(number)

    def begin(self, entry: Entry) -> None:
        """Count a turn that begins."""
        self._post("UPDATE inbox SET begun = begun + 1 WHERE id = ?", entry.id)

    async def effect(self, entry: Entry, name: str) -> None:
        """Mark, before it happens, that a turn is about to change something outside. Raises as `accept` does."""
        await self._write("UPDATE inbox SET effect = COALESCE(effect, ?) WHERE id = ?", name, entry.id)

    def stop(self, entry: Entry) -> None:
        """Note that somebody stopped this message, before it has settled: it must not run again."""
        self._post("UPDATE inbox SET stopped = 1 WHERE id = ?", entry.id)

    async def drafting(self, entry: Entry, bubbles: str) -> None:
        """Remember that a draft is about to be opened, before it is. Raises as `accept` does."""
        await self._database.run(_statement("UPDATE inbox SET draft = ? WHERE id = ?", (bubbles, entry.id)))

    def draft(self, entry: Entry, platform_id: str | None) -> None:
        """Remember the draft that stands in the chat, None when it is gone or sealed."""
        self._post("UPDATE inbox SET draft = ? WHERE id = ?", platform_id, entry.id)

    def merge(
        self, entry: Entry, message: Message, parts: Sequence[Entry], *, trust: Trust, commands: bool = False
    ) -> None:
        """Let one row carry a whole album, and end the rows of its other parts with it, in one transaction."""
        carried = (trust.value, commands, _encoded(message), entry.id)

        def update(connection: Connection) -> None:
            connection.execute("UPDATE inbox SET trust = ?, commands = ?, message_json = ? WHERE id = ?", carried)
            ended = [(part.id,) for part in parts]
            connection.executemany("UPDATE inbox SET outcome = 'handled' WHERE id = ?", ended)

        self._database.post(update)

    async def heard(self, entry: Entry, message: Message) -> None:
        """Let a row carry what was said in its recording, before anything is made of it. Raises as `accept` does."""
        await self._database.run(
            _statement("UPDATE inbox SET message_json = ? WHERE id = ?", (_encoded(message), entry.id))
        )

    async def outgoing(
        self,
        entry: Entry,
        texts: Sequence[str],
        *,
        settles: Outcome | None,
        model: str | None = None,
        answer: str | None = None,
        on_its_way: bool = True,
    ) -> tuple[Outgoing, ...]:
        """Write a reply down before it is sent, all its parts at once; the first one counts as on its way, unless
        something else comes before its send.

        `answer` is the whole text of what the agent said. Half characters are replaced. Raises as `accept` does.
        """

        def insert(connection: Connection) -> tuple[Outgoing, ...]:
            if answer is not None:
                whole = valid_text(answer)
                connection.execute("UPDATE inbox SET answer = ?, model = ? WHERE id = ?", (whole, model, entry.id))
            parts: list[Outgoing] = []
            for text in map(valid_text, texts):
                state: State = "in_flight" if on_its_way and not parts else "unsent"
                key = uuid.uuid4().hex
                (number,) = connection.execute(_OUTGOING, (entry.id, key, text, model, settles, state)).fetchone()
                parts.append(Outgoing(int(number), key, text, model, settles, state))
            return tuple(parts)

        return await self._database.run(insert, durable=True)

    async def sending(self, outgoing: Outgoing) -> None:
        """Mark a send that is about to start. Raises as `accept` does."""
        await self._write(
            "UPDATE outbox SET state = 'in_flight', marked = ? WHERE id = ?", outgoing.marked, outgoing.id
        )

    def unsent(self, outgoing: Outgoing, error: str) -> None:
        """Note that a send surely did not land and may be tried again."""
        self._post("UPDATE outbox SET state = 'unsent', error = ? WHERE id = ?", error, outgoing.id)

    def sent(self, outgoing: Outgoing, platform_id: str) -> None:
        """Note that a send landed."""
        self._post(_SENT, platform_id, outgoing.id)

    def sealed(self, entry: Entry, outgoing: Outgoing, platform_id: str) -> None:
        """Note that the draft became this part: both in one step, since either alone would tell a start a lie."""

        def update(connection: Connection) -> None:
            connection.execute(_SENT, (platform_id, outgoing.id))
            connection.execute("UPDATE inbox SET draft = NULL WHERE id = ?", (entry.id,))

        self._database.post(update)

    def failed(self, outgoing: Outgoing, error: str) -> None:
        """Note that a send is given up."""
        self._post("UPDATE outbox SET state = 'failed', error = ? WHERE id = ?", error, outgoing.id)

    def settle(self, entry: Entry, outcome: Outcome) -> None:
        """Give a message its last word."""
        self._post("UPDATE inbox SET outcome = ? WHERE id = ?", outcome, entry.id)

    async def unfinished(self) -> tuple[Unfinished, ...]:
        """Return what an earlier process left, oldest first. Raises as `accept` does."""

        def look(connection: Connection) -> list[tuple[Row, list[Row]]]:
            rows = connection.execute(_UNFINISHED).fetchall()
            return [(row, connection.execute(_OUTBOX, row[:1]).fetchall()) for row in rows]

        found: list[Unfinished] = []
        for row, replies in await self._database.run(look):
            try:
                found.append(_unfinished(row, replies))
            except (ValueError, RecursionError) as error:
                log.error("ledger row %s cannot be read and is given up: %s", row[0], error)  # noqa: TRY400 - no bug of ours
                self._post("UPDATE inbox SET outcome = 'failed' WHERE id = ?", row[0])
        return tuple(found)

    async def _write(self, statement: str, *parameters: SqlValue) -> None:
        await self._database.run(_statement(statement, parameters), durable=True)

    def _post(self, statement: str, *parameters: SqlValue) -> None:
        self._database.post(_statement(statement, parameters))


def _statement(statement: str, parameters: Sequence[SqlValue]) -> Callable[[Connection], None]:
    """Half characters, which a platform may put into an id or an error, are replaced: no disk takes them."""
    written = [valid_text(value) if isinstance(value, str) else value for value in parameters]

    def run(connection: Connection) -> None:
        connection.execute(statement, written)

    return run


def _encoded(message: Message) -> str:
    """Write a message as JSON, without the bytes of its files. Lone surrogates survive as escapes."""
    return json.dumps(asdict(replace(message, media=())), default=str)  # times and paths, read back from their text


def _stamp(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds")


@cache
def _unfinished_row() -> TypeAdapter[Unfinished]:
    """Made when first needed: it takes a start some milliseconds, and most starts find nothing unfinished."""
    return TypeAdapter(Unfinished)


def _unfinished(row: Row, replies: Sequence[Row]) -> Unfinished:
    """Read a row back. Raises: ValueError or RecursionError when somebody else wrote it."""
    number, *values = row
    found = _unfinished_row().validate_python(
        {
            "entry": {"id": number},
            "message": json.loads(str(values[1])),
            "replies": [dict(zip(_REPLY_FIELDS, reply, strict=True)) for reply in replies],
            **dict(zip(_ROW_FIELDS, (values[0], *values[2:]), strict=True)),
        }
    )
    if found.accepted_at.tzinfo is None:
        raise ValueError("accepted_at names no time zone")
    return found
