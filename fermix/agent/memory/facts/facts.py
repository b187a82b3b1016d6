"""What is remembered about the owner and the work: read from memory, changed in one way, on disk when a call returns.

The tools, the socket and the verb (with and without a daemon) all come in here. A change is one transaction with its
line in the trail; then the derived files follow, and whoever holds a prompt is told. What must stay true: broken is
never taken for empty, and what memory holds is what the database holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from fermix.agent.memory.facts import revisions, rows
from fermix.agent.memory.facts.fact import AT_THE_TERMINAL, CATEGORIES, Draft, Fact, Origin, checked_value, place_of
from fermix.agent.memory.facts.files import DerivedFiles, told_by_hand
from fermix.agent.memory.facts.render import SHAPES
from fermix.agent.memory.facts.revisions import Revision, Source
from fermix.agent.memory.facts.rows import Act, Change, State
from fermix.agent.memory.rows import moment, stamp
from fermix.clock import Clock
from fermix.errors import FermixError, Refused, Unusable
from fermix.home import Home
from fermix.store import Connection, Database
from fermix.workers import Workers

log = logging.getLogger(__name__)

T = TypeVar("T")

LAST = 2**62  # behind every number of a row
NOT_FOUND = "there is no memory with the id {}; memory_recall and `fermix memory list` name them"
MOST_REASON_CHARS = 200

Changed = tuple[T, tuple[str, ...]]
"""What a change left behind, and what the owner should hear about the files."""
MayEdit = Callable[[Fact], bool]


def _nobody_to_tell() -> None:
    """Without a daemon nobody holds a prompt."""


def _everything(_fact: Fact) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Remembered:
    """The texts for the prompt, "" for none. `problem` says that the memory cannot be read, "" when it can."""

    user: str = ""
    memory: str = ""
    problem: str = ""


class Facts:
    """One per process and database; used from the loop's thread only."""

    def __init__(
        self,
        database: Database,
        home: Home,
        workers: Workers,
        clock: Clock,
        changed: Callable[[], None] = _nobody_to_tell,
    ) -> None:
        """`changed` is called after every change and drops what was built from the facts."""
        self._database = database
        self._clock = clock
        self._files = DerivedFiles(home.memory, database, workers, clock)
        self._active: tuple[Fact, ...] | None = None
        self._lock = asyncio.Lock()
        self._tell = changed

    # Reading.

    async def remembered(self) -> Remembered:
        """Return the texts for the prompt, with the files brought up to date. A memory that fails is a problem told."""
        try:
            async with self._lock:
                shown = await self._files.refresh(await self._loaded())
        except FermixError as error:
            log.warning("the memory cannot be read: %s", error)
            return Remembered(problem=str(error))
        return Remembered(shown["USER.md"].text, shown["MEMORY.md"].text)

    async def active(self) -> tuple[Fact, ...]:
        """Return what is remembered now, the newest change first.

        Raises: NeedsOperator or Unavailable when the database cannot be read.
        """
        async with self._lock:
            return await self._loaded()

    async def page(self, after: int, limit: int, *, archived: bool) -> tuple[Fact, ...]:
        """Read rows by their number, archived ones too when wanted."""
        found = await self._database.read(rows.PAGE, (*rows.US, after, archived, limit))
        return tuple(map(rows.fact_of, found))

    async def find(self, memory_id: int) -> Fact | None:
        """Read one row, archived or not."""
        found = await self._database.read(rows.ONE, (*rows.US, memory_id))
        return rows.fact_of(found[0]) if found else None

    async def changes(self, memory_id: int | None, limit: int, before: int = LAST) -> tuple[Change, ...]:
        """Read the trail of one fact or of all, the newest first."""
        wanted = memory_id or 0
        found = await self._database.read(rows.CHANGES, (*rows.US, wanted, wanted, before, limit))
        return tuple(map(rows.change_of, found))

    async def revisions(self, name: str, limit: int, before: int = LAST) -> tuple[Revision, ...]:
        """Read the kept texts of a file, the newest first; a change by hand is noticed first. Raises: Unusable."""
        _check_file(name)
        await self.remembered()
        found = await self._database.read(revisions.LIST, (*rows.US, name, before, limit))
        return tuple(map(revisions.revision_of, found))

    async def hand_written(self) -> tuple[str, ...]:
        """Tell which files hold a text of the owner's own hand that counts now, instead of what is remembered."""
        async with self._lock:
            shown = await self._files.refresh(await self._loaded())
        return tuple(told_by_hand(name, file.by_hand) for name, file in shown.items() if file.by_hand)

    async def revision(self, name: str, number: int) -> Revision:
        """Read one kept text. Raises: Unusable when there is none."""
        _check_file(name)
        found = await self._database.read(revisions.ONE, (*rows.US, name, number))
        if not found:
            raise _unusable(f"{name} has no revision {number}; `fermix memory history {name}` lists them")
        return revisions.revision_of(found[0])

    # Changing.

    async def store(self, draft: Draft, origin: Origin) -> Changed[Fact]:
        """Keep a fact, in the place of the one with its key. Raises: LimitReached; what the database raises."""
        act = self._act(origin)
        return await self._change(lambda connection: rows.put(connection, draft, act))

    async def replace(
        self, memory_id: int, value: str, category: str | None, origin: Origin, may_edit: MayEdit
    ) -> Changed[Fact]:
        """Give a fact another value, and another category of the same place. Raises: Unusable, Refused."""
        act = self._act(origin)

        def replace(connection: Connection) -> Fact:
            fact = _editable(connection, memory_id, may_edit)
            kept = CATEGORIES.get(fact.category if category is None else category)
            if kept is None or (fact.place.lasting and place_of(kept, None) != fact.place):
                told = f"memory {memory_id} is a {fact.category} and cannot become a {category}; store it anew"
                raise _unusable(told)
            state = State(kept, checked_value(value, fact.place, kept), archived=False)
            return rows.write(connection, fact, state, "store", act)

        return await self._change(replace)

    async def forget(
        self, memory_id: int, origin: Origin, reason: str = "", may_edit: MayEdit = _everything
    ) -> Changed[Fact]:
        """Archive a fact; `restore` brings it back. Raises: Unusable when there is none, Refused."""
        act = self._act(origin, reason)

        def forget(connection: Connection) -> Fact:
            fact = _editable(connection, memory_id, may_edit)
            return rows.write(connection, fact, State(fact.category, fact.value, archived=True), "forget", act)

        return await self._change(forget)

    async def restore(self, memory_id: int, change_id: int | None = None) -> Changed[Fact]:
        """Bring a fact back: from the archive, to what it was before its last change, or as a change left it.

        Without a change it never takes a fact away: who asks twice still has it. Raises: Unusable when there is nothing
        of that.
        """
        act = self._act(AT_THE_TERMINAL)

        def restore(connection: Connection) -> Fact:
            fact = _editable(connection, memory_id, _everything)
            return rows.write(connection, fact, _earlier(connection, fact, change_id), "restore", act)

        return await self._change(restore)

    async def roll_back(self, name: str, number: int) -> Changed[int]:
        """Bring all facts of a file to where they were at a revision; return how many changed. Raises: Unusable."""
        revision = await self.revision(name, number)
        if revision.by_hand:
            raise _unusable(
                f"revision {number} of {name} was written by hand and is made of no facts; read it with "
                f"`fermix memory history {name} {number}` and tell the agent what to remember of it"
            )
        act = self._act(AT_THE_TERMINAL, f"back to revision {number} of {name}")

        def roll_back(connection: Connection) -> int:
            return sum(
                rows.write(connection, fact, _as_of(connection, fact, revision), "restore", act) != fact
                for fact in rows.shown_in(connection, SHAPES[name].target)
            )

        return await self._change(roll_back, "rollback")

    async def _change(self, job: Callable[[Connection], T], source: Source = "rebuild") -> Changed[T]:
        """Run a job as one transaction, then bring memory, files and prompts up to it."""
        async with self._lock:
            self._active = None  # whatever becomes of it, what was known before is not to be trusted any more
            try:  # a caller that is stopped here has changed something all the same
                result = await self._database.run(job, durable=True)
                shown = await self._files.refresh(await self._loaded(), source)
            finally:
                self._tell()
        return result, tuple(note for file in shown.values() for note in file.notes)

    async def _loaded(self) -> tuple[Fact, ...]:
        """Return what memory holds; read it behind every change that is on its way."""
        if self._active is None:
            self._active = await self._database.run(rows.active)
        return self._active

    def _act(self, origin: Origin, reason: str = "") -> Act:
        return Act(origin, stamp(moment(self._clock.now())), " ".join(reason.split())[:MOST_REASON_CHARS])


def _editable(connection: Connection, memory_id: int, may_edit: MayEdit) -> Fact:
    fact = rows.find(connection, memory_id)
    if fact is None:
        raise _unusable(NOT_FOUND.format(memory_id))
    if not may_edit(fact):
        told = f"memory {memory_id} belongs to another conversation or a job and is not changed from here"
        raise Refused(told, user_text=told)
    return fact


def _earlier(connection: Connection, fact: Fact, change_id: int | None) -> State:
    if change_id is not None:
        if not rows.is_change_of(connection, fact.id, change_id):
            raise _unusable(f"memory {fact.id} has no change {change_id}; `fermix memory history {fact.id}` lists them")
        earlier = rows.state_after(connection, fact.id, change_id)
    elif not fact.active:
        return State(fact.category, fact.value, archived=False)
    else:
        earlier = _before_the_last(connection, fact)
    if earlier is None:
        raise _unusable(f"memory {fact.id} was stored once and never changed; `fermix memory forget {fact.id}` ends it")
    return earlier


def _before_the_last(connection: Connection, fact: Fact) -> State | None:
    earlier = rows.state_after(connection, fact.id, fact.change_id - 1)
    if earlier is not None and earlier.archived:
        raise _unusable(
            f"memory {fact.id} is remembered, and before its last change it was forgotten; `fermix memory forget "
            f"{fact.id}` ends it, and `fermix memory history {fact.id}` numbers what it was before"
        )
    return earlier


def _as_of(connection: Connection, fact: Fact, revision: Revision) -> State:
    earlier = rows.state_after(connection, fact.id, revision.change_id)
    return earlier or State(fact.category, fact.value, archived=True)


def _check_file(name: str) -> None:
    if name not in SHAPES:
        raise _unusable(f"there is no file {name[:40]!r}; take {' or '.join(SHAPES)}")


def _unusable(text: str) -> Unusable:
    return Unusable(text, user_text=text)
