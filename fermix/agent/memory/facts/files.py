"""USER.md and MEMORY.md on disk: made from the facts, written whole or not at all, each text a revision.

Called by `facts.py` after every change and whenever the prompt is built. What must stay true: the database is the
truth and the files follow it; a file that was changed by hand is kept as a revision before anything replaces it, and
what it says counts until the next change of a fact it shows; no failing file ever fails a change or a turn.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fermix.agent.memory.facts import revisions, rows
from fermix.agent.memory.facts.fact import Fact
from fermix.agent.memory.facts.render import SHAPES, FileShape, Rendered, render
from fermix.agent.memory.facts.revisions import Revision, Source, digest
from fermix.agent.memory.rows import moment, stamp
from fermix.clock import Clock
from fermix.errors import FermixError
from fermix.home import write_atomic
from fermix.store import Database
from fermix.workers import Workers

log = logging.getLogger(__name__)

MOST_BYTES = 65_536  # of a file that somebody wrote by hand; more is a mistake, not a memory


@dataclass(frozen=True, slots=True)
class Shown:
    """What a file says to a model now; `notes` are what the owner should hear of it, `by_hand` is the revision of the
    text that somebody wrote into it and that counts, 0 for none.
    """

    text: str
    notes: tuple[str, ...] = ()
    by_hand: int = 0


class DerivedFiles:
    """One per daemon. Its caller sees to it that no two calls overlap."""

    def __init__(self, folder: Path, database: Database, workers: Workers, clock: Clock) -> None:
        self._folder = folder
        self._database = database
        self._workers = workers
        self._clock = clock

    async def refresh(self, facts: Sequence[Fact], source: Source = "rebuild") -> dict[str, Shown]:
        """Bring every file up to the facts and return what each says. Raises nothing that was foreseen."""
        return {name: await self._refresh(shape, facts, source) for name, shape in SHAPES.items()}

    async def _refresh(self, shape: FileShape, facts: Sequence[Fact], source: Source) -> Shown:
        made = render(shape, facts)
        try:
            return await self._follow(shape, made, source)
        except (OSError, FermixError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            told = f"{shape.name} could not be brought up to date ({why}); what is remembered stands in the database"
            log.warning("%s", told)
            return Shown(made.text.strip(), (told,))

    async def _follow(self, shape: FileShape, made: Rendered, source: Source) -> Shown:
        path = self._folder / shape.name
        there = await self._workers.run(_read, path)
        newest = await self._newest(shape.name)
        ((changed_at,),) = await self._database.read(rows.NEWEST_CHANGE, (*rows.US, shape.target))
        change_id = changed_at if isinstance(changed_at, int) else 0
        notes: list[str] = []
        if there is not None and not await self._is_ours(shape.name, there, newest):
            newest = await self._keep_by_hand(shape.name, there, newest)
            notes.append(told_by_hand(shape.name, newest.number))
            log.warning("%s", notes[-1])
        if newest is not None and newest.by_hand and newest.change_id == change_id and there is not None:
            return Shown(there.strip(), tuple(notes), newest.number)
        if newest is None or newest.sha256 != digest(made.text):
            newest = await self._add(shape.name, made.text, source, change_id) if made.text or newest else None
            notes += _told_dropped(shape, made)
        if there != made.text and (made.text or there):
            await self._workers.run(write_atomic, path, made.text.encode("utf-8"))
        return Shown(made.text.strip(), tuple(notes))

    async def _keep_by_hand(self, name: str, there: str, newest: Revision | None) -> Revision:
        """Keep what somebody wrote, as old as the text it was written over: any change since then replaces it."""
        if newest is None:
            return await self._add(name, there, "imported", 0)
        return await self._add(name, there, "manual_edit", newest.change_id)

    async def _is_ours(self, name: str, there: str, newest: Revision | None) -> bool:
        """Tell whether a file holds what Fermix wrote: the newest text, or an older one after a failed write."""
        if not there.strip() or (newest is not None and newest.sha256 == digest(there)):
            return True
        return bool(await self._database.read(revisions.KNOWN, (*rows.US, name, digest(there))))

    async def _newest(self, name: str) -> Revision | None:
        found = await self._database.read(revisions.NEWEST, (*rows.US, name))
        return revisions.revision_of(found[0]) if found else None

    async def _add(self, name: str, text: str, source: Source, change_id: int) -> Revision:
        at = stamp(moment(self._clock.now()))
        return await self._database.run(lambda connection: revisions.add(connection, name, text, source, change_id, at))


def _read(path: Path) -> str | None:
    """Return the text of a file, None when there is none. Raises: OSError, also for what is no text."""
    if path.is_fifo():  # nobody may ever write into it, and every change of a fact would wait
        raise OSError(0, "it is a pipe")
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > MOST_BYTES:
        raise OSError(0, f"it is larger than {MOST_BYTES} bytes; shorten it")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise OSError(0, f"it is not UTF-8 text (byte {error.start})") from error


def told_by_hand(name: str, number: int) -> str:
    """Say what becomes of a text that somebody wrote into a file."""
    return (
        f"{name} was written by hand; that text is kept as revision {number} (`fermix memory history {name} {number}`) "
        "and counts until a fact it shows is changed, then the file is made from the database again"
    )


def _told_dropped(shape: FileShape, made: Rendered) -> list[str]:
    if not made.dropped:
        return []
    told = f"{shape.name} has no room for {made.dropped} older facts; memory_recall still finds them"
    log.warning("%s", told)
    return [told]
