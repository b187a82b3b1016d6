"""Full-text search over the stored messages, and the service that keeps its index up to them.

What is written is indexed a moment later, and what is not yet when somebody searches is indexed first. What stood
before is indexed in the background, in chunks with pauses, the newest first; a stop at any moment is taken up where it
was. A damaged index is emptied and filled again; the messages themselves are not touched.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from fermix.agent.memory.conversations import Conversations
from fermix.agent.memory.rows import moment
from fermix.agent.memory.search import index, ranking
from fermix.agent.memory.search.snippet import snippet
from fermix.agent.memory.search.words import asked
from fermix.agent.model import valid_text
from fermix.agent.results import is_framed, without_frame
from fermix.clock import Clock
from fermix.errors import FermixError, Unavailable
from fermix.message import ConversationKey
from fermix.store import Damaged, Database, IndexDamaged, SqlValue
from fermix.workers import Workers

log = logging.getLogger(__name__)

MOST_FOUND = 50
RETRY_S = 5.0
SOON_S = 0.2  # what is written together is indexed together
PAUSE_S = 0.02  # between two chunks of the old rows: as long as about one of them takes
CATCH_UP_CHUNKS = 5  # that a search waits for
AFFORDABLE = 5_000  # hits of the rarest of words that are looked for together: some milliseconds
MOST_WEIGHED_CHARS = 4_000  # of one message
UNFINISHED = "(older messages are still being indexed; ask again later if it is not among these)"
REBUILT = "the search index was damaged and is built again in the background; what was said is untouched"

_SHOWN = "kind = 'chat_message' AND role != 'tool' AND content != ''"  # as the index messages_shown has it
_COLUMNS = (
    f"id, channel, chat_id, thread_scope, sender, role, substr(content, 1, {MOST_WEIGHED_CHARS}), created_at,"
    " metadata_json LIKE '%\"guest\": true%', ledger_id,"
    " metadata_json LIKE '%\"outside\": true%'"
)
_NEXT = (
    "SELECT c.id, (SELECT MIN(m.id) FROM messages AS m WHERE m.agent_id = c.agent_id AND m.owner_id = c.owner_id"
    " AND m.channel = c.channel AND m.chat_id = c.chat_id AND m.thread_scope = c.thread_scope"
    f" AND m.session = c.session AND m.id > c.id AND {_SHOWN}) FROM messages AS c WHERE c.id IN"
)
_WITH_OTHERS = (
    "SELECT DISTINCT ledger_id FROM messages WHERE (role = 'tool' AND instr(content, '<fermix-untrusted source=') > 0"
    " OR metadata_json LIKE '%\"guest\": true%') AND ledger_id IN"
)
"""Of which messages the turn read words from outside, digests of them included, or was a guest's."""


_Row = tuple[SqlValue, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """One message that was found. `outside`: a page, a file or another program said it, or stood before the answer, or
    went into the summary.
    """

    number: int
    key: ConversationKey
    sender: str
    role: str
    at: datetime
    snippet: str
    guest: bool
    outside: bool

    @property
    def own(self) -> bool:
        """Whether nobody but the owner and the agent had a part in the words."""
        return not (self.guest or self.outside or self.role == "tool")

    @property
    def speaker(self) -> str:
        """Who said it, for a reader, with what speaks against believing it."""
        who = {"user": self.sender or "user", "tool": "result of a tool", "system": "summary"}.get(self.role, self.role)
        marks = ["of a guest's conversation"] * self.guest + ["with words from outside"] * self.outside
        return f"{who} ({', '.join(marks)})" if marks else who

    @property
    def line(self) -> str:
        """What a model reads of it."""
        return f"{self.at:%Y-%m-%d %H:%M} UTC, {self.key.channel} {self.key.chat_id}, {self.speaker}: {self.snippet}"


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, the best first. `whole` is False while older messages are not in the index yet."""

    hits: tuple[Hit, ...]
    whole: bool


class Search:
    """A service, one per daemon; used from the loop's thread. `find` works without the service running too."""

    name = "search index"

    def __init__(self, database: Database, workers: Workers, clock: Clock) -> None:
        self._database = database
        self._workers = workers
        self._clock = clock
        self._wake = asyncio.Event()
        self._broken = False

    @classmethod
    def following(cls, conversations: Conversations, database: Database, workers: Workers, clock: Clock) -> Search:
        """Make one that learns at once of what these conversations write."""
        search = cls(database, workers, clock)
        conversations.when_written(search.wake)
        return search

    def wake(self) -> None:
        """Say that something was written. Called by whoever writes messages; costs nothing."""
        self._wake.set()

    async def run(self, started: Callable[[], None]) -> None:
        """Wait out a disk without room and a file that is held: whoever writes messages tells those.

        Raises: Damaged, and IndexDamaged when the index cannot even be built anew.
        """
        started()
        while True:
            try:
                more = await self._step()
            except (Damaged, IndexDamaged):
                raise
            except FermixError as error:
                log.info("the search index waits: %s", error)
                await self._clock.sleep(RETRY_S)
                continue
            if more:
                await self._clock.sleep(PAUSE_S)
                continue
            await self._wake.wait()
            await self._clock.sleep(SOON_S)

    async def _step(self) -> bool:
        """Bring the index on by a little; tell whether more is to be done at once."""
        if self._broken:
            await self._rebuild()
        try:
            return await self._add()
        except IndexDamaged as error:
            log.warning("%s: %s", error, REBUILT)
            await self._rebuild()
            return await self._add()  # a second finding is not of the index: the supervisor tells it

    async def find(self, query: str, limit: int = 10) -> Found:
        """Return the best messages for a question in any words; nothing for a question without words.

        Raises: Unavailable when the index is damaged (it is then built again) or the file is held by another program.
        """
        terms, limit = asked(valid_text(query)), max(1, min(limit, MOST_FOUND))
        if not terms:
            return Found((), True)
        try:
            low, high = await self._caught_up()
            hits = await self._hits(index.one_by_one(terms), len(terms))
            weights = ranking.weigh(terms, hits, high)
            together = ranking.groups(terms, hits, high, AFFORDABLE)
            groups = [[terms[place] for place in group] for group in together]
            met = await self._hits(index.together(groups), len(groups)) if groups else []
        except IndexDamaged as error:
            if not self._broken:
                log.warning("%s: %s", error, REBUILT)
            self._broken = True
            self._wake.set()
            raise Unavailable(str(error), user_text=f"{REBUILT}. Ask again in a minute.") from error
        promising = await self._workers.run(ranking.promising, hits, weights, dict(zip(together, met, strict=True)))
        rows = await self._rows(promising)
        after = await self._answers(rows)
        rows |= await self._rows([number for number in after if number not in rows])
        lines = [self._line(row, after.get(number, 0)) for number, row in rows.items()]
        best = await self._workers.run(ranking.best, lines, terms, weights, limit)
        return Found(await self._shown([rows[number] for number in best], terms, weights), low <= 1)

    async def _add(self) -> bool:
        """Index what is new, then one chunk of what is old; tell whether more is old."""
        self._wake.clear()
        while await self._database.run(index.add_new):
            pass
        return await self._database.run(index.add_old)

    async def _rebuild(self) -> None:
        await self._database.run(index.empty)
        self._broken = False

    async def _caught_up(self) -> tuple[int, int]:
        """Bring the newest rows in and return from where to where the index reaches."""
        low, high, newest = await self._reach()
        for _ in range(CATCH_UP_CHUNKS):
            if newest <= high:
                break
            await self._database.run(index.add_new)
            low, high, newest = await self._reach()
        return low, high

    async def _reach(self) -> tuple[int, int, int]:
        """Return the first and the last number in the index, and the last that is stored."""
        low, high, newest = (await self._database.read(index.PROGRESS))[0]
        return _number(low), _number(high), _number(newest)

    async def _hits(self, query: tuple[str, list[SqlValue]], places: int) -> list[list[int]]:
        return ranking.by_place(await self._database.read(*query), places)

    async def _rows(self, numbers: Sequence[int]) -> dict[int, _Row]:
        if not numbers:
            return {}
        found = await self._database.read(f"SELECT {_COLUMNS} FROM messages WHERE id IN ({_places(numbers)})", numbers)
        return {_number(row[0]): row for row in found}

    async def _answers(self, rows: dict[int, _Row]) -> dict[int, int]:
        """Return the message after each that asks something, as {after: asking}."""
        asking = [number for number, row in rows.items() if self._line(row, 0).asks]
        if not asking:
            return {}
        found = await self._database.read(f"{_NEXT} ({_places(asking)})", asking)
        return {_number(after): _number(number) for number, after in found if after is not None}

    def _line(self, row: _Row, after: int) -> ranking.Line:
        number, _, _, _, _, role, content, created_at, *_ = row
        age = moment(self._clock.now()) - datetime.fromisoformat(str(created_at))
        days = max(age.total_seconds(), 0.0) / 86_400
        return ranking.Line(_number(number), str(role), without_frame(str(content)), days, after)

    async def _shown(self, rows: Sequence[_Row], terms: Sequence[str], weights: Sequence[float]) -> tuple[Hit, ...]:
        turns = [ledger for row in rows if (ledger := row[9]) is not None]
        exposed: set[SqlValue] = set()
        if turns:
            exposed = {row[0] for row in await self._database.read(f"{_WITH_OTHERS} ({_places(turns)})", turns)}
        return tuple(_hit(row, row[5] != "user" and row[9] in exposed, terms, weights) for row in rows)


def _hit(row: _Row, exposed: bool, terms: Sequence[str], weights: Sequence[float]) -> Hit:
    number, channel, chat, thread, sender, role, content, created_at, guest, _, outside = row
    text = str(content)
    return Hit(
        _number(number), ConversationKey(str(channel), str(chat), str(thread)), str(sender), str(role),
        datetime.fromisoformat(str(created_at)), snippet(without_frame(text), terms, weights), bool(guest),
        exposed or bool(outside) or is_framed(text),
    )  # fmt: skip


def _places(values: Sequence[SqlValue]) -> str:
    return ", ".join("?" * len(values))


def _number(value: SqlValue) -> int:
    assert isinstance(value, int)  # a column of numbers
    return value
