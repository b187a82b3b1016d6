"""One FIFO lane per conversation: at most one turn runs in each, the others wait in order of arrival.

A message reserves its slot before anything slow is done for it, so order is fixed at the door. A slot is then
filled with work or released (a command, an empty message). Only a stop ends running work, or what is prepared for it.
Different lanes run at the same time. A lane is forgotten when it is empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

from fermix.events import Events, QueueChanged
from fermix.gateway.leaks import is_cancelled
from fermix.message import ConversationKey

log = logging.getLogger(__name__)

MOST_WAITING = 50  # of one lane, and a lane is one person or one room
MOST_WAITING_BYTES = 1_000_000
MOST_WAITING_MEDIA_BYTES = 64_000_000  # room for one message with as many pictures as it may have


class Unready(Protocol):
    """What is to become work."""

    def drop(self) -> None:
        """It was stopped before it began; settle it."""
        ...


class Work(Unready, Protocol):
    """One turn on its way through a lane."""

    async def run(self) -> None:
        """Run to the settled end."""
        ...

    def stop(self) -> None:
        """Ask the running turn to end; returns at once."""
        ...

    def leave(self) -> None:
        """The daemon goes: end at once without settling; the next start takes the message up."""
        ...


class Slot:
    """A place in a lane. `size_bytes` and `media_bytes` say how much text and how many other bytes its work holds.
    `promised`: an earlier process took the message, so a full lane refuses it no more.
    """

    def __init__(self, lane: Lane, message_id: str) -> None:
        self.message_id = message_id
        self.stopped = False
        self.promised = False
        self.work: Work | None = None
        self.size_bytes = 0
        self.media_bytes = 0
        self.decided = asyncio.Event()
        self.reached = asyncio.Event()
        """Set when nothing is before it any more."""
        self._lane = lane
        self._preparing: asyncio.Task[object] | None = None
        self._unready: Unready | None = None

    @property
    def prepares(self) -> bool:
        """Whether its work is still being prepared."""
        return self._preparing is not None

    @contextmanager
    def waiting(self, unready: Unready) -> Generator[None]:
        """Surround what must come before the work can be.

        A stop cancels the task that is in here and drops `unready`, and the lane moves on; a shutdown cancels it and
        leaves the place. Either way the slot is decided.
        """
        self._preparing, self._unready = asyncio.current_task(), unready
        try:
            yield
        finally:
            self._preparing, self._unready = None, None

    @asynccontextmanager
    async def preparing(self, unready: Unready) -> AsyncGenerator[None]:
        """Surround what is fetched: as `waiting`, for one message of a lane at a time."""
        with self.waiting(unready):
            if self.promised:  # no bound of waiting media holds for it, so it fetches its own when it need not wait
                await self.reached.wait()
            async with self._lane.preparing:
                yield

    def expect(self, unready: Unready) -> None:
        """Name what a stop drops while there is no work here yet; whoever prepares it then looks at `stopped`."""
        self._unready = unready

    def fill(self, work: Work, size_bytes: int = 0, media_bytes: int = 0) -> bool:
        """Hand over the work; it runs when the slot's turn comes, or is dropped when a stop came first.

        False, and nothing taken, when too much waits here already.
        """
        if not (self.stopped or self.promised or self._lane.admits(self, size_bytes, media_bytes)):
            return False
        self.size_bytes, self.media_bytes = size_bytes, media_bytes
        self.put(work)
        return True

    def put(self, work: Work) -> None:
        """Hand over work that is never refused."""
        if self.stopped:
            work.drop()
        else:
            self.work = work
        self.decided.set()
        self._lane.changed()

    def release(self) -> None:
        """Give the place back: nothing is to be run."""
        self.decided.set()

    def stop(self) -> bool:
        """Drop what has not begun; False when there is nothing yet, and what comes then is dropped."""
        self.stopped = True
        if (dropped := self._given_up()) is None:
            return False
        dropped.drop()
        return True

    def leave(self) -> None:
        """The daemon goes: nothing is to be run here, and nothing is settled."""
        self._given_up()
        self.decided.set()

    def _given_up(self) -> Unready | None:
        given_up, self.work = self.work or self._unready, None
        if self._preparing is not None:
            self._preparing.cancel()
            self.decided.set()  # now: what holds the bytes may take its time to let go
        return given_up


class Lane:
    """The slots of one conversation; the first is the running one."""

    def __init__(self, key: ConversationKey, events: Events) -> None:
        self.key = key
        self.slots: deque[Slot] = deque()
        self.running: Slot | None = None
        self.preparing = asyncio.Lock()
        """Bounds what is half fetched. Those behind wait for the first one anyway."""
        self._events = events

    def changed(self) -> None:
        running = self.running.message_id if self.running else None
        waiting = tuple(slot.message_id for slot in self.slots if slot is not self.running and slot.work)
        self._events.emit(QueueChanged(self.key, running, waiting))

    async def run(self) -> None:
        """Run every slot in order until none is left. Work that raises is logged and ends only itself."""
        while self.slots:
            slot = self.slots[0]
            slot.reached.set()
            await slot.decided.wait()
            if slot.work is not None:
                self.running = slot
                self.changed()
                await _run_alone(slot.work)
            self.running = None
            self.slots.popleft()
        self.changed()

    def admits(self, slot: Slot, size_bytes: int, media_bytes: int) -> bool:
        """Tell whether one more may wait; what can run at once always may."""
        if slot is self.slots[0]:
            return True
        waiting = [other for other in self.slots if other is not self.slots[0] and other.work]
        return (
            len(waiting) < MOST_WAITING
            and size_bytes + sum(other.size_bytes for other in waiting) <= MOST_WAITING_BYTES
            and media_bytes + sum(other.media_bytes for other in waiting) <= MOST_WAITING_MEDIA_BYTES
        )

    def leave(self) -> None:
        """End at once and settle nothing."""
        self._leave(self.slots)

    def leave_unprepared(self) -> None:
        """Leave what is still being prepared, and what waits behind it: its turn would come too early."""
        slots = list(self.slots)
        first = next((place for place, slot in enumerate(slots) if slot.prepares), len(slots))
        self._leave(slots[first:])

    def _leave(self, slots: Iterable[Slot]) -> None:
        for slot in slots:
            if slot is self.running and slot.work is not None:
                slot.work.leave()
            else:
                slot.leave()

    def stop(self, *, before: Slot | None) -> tuple[int, int]:
        """Stop the running turn and drop what waits, up to `before`. Returns (stopped, dropped)."""
        targets = list(self.slots)
        if before is not None:
            targets = targets[: targets.index(before)]
        counts = [self._stop_slot(slot) for slot in targets]
        self.changed()
        return counts.count("stopped"), counts.count("dropped")

    def stop_message(self, message_id: str) -> tuple[int, int]:
        """Stop one message wherever it stands in this lane. Returns (stopped, dropped)."""
        counts = [self._stop_slot(slot) for slot in self.slots if slot.message_id == message_id]
        self.changed()
        return counts.count("stopped"), counts.count("dropped")

    def _stop_slot(self, slot: Slot) -> str:
        if slot is self.running and slot.work is not None:
            slot.work.stop()
            return "stopped"
        return "dropped" if not slot.stopped and slot.stop() else ""


class Lanes:
    """All lanes. Runners are tasks of the gateway's own group."""

    def __init__(self, group: asyncio.TaskGroup, events: Events) -> None:
        self._group = group
        self._events = events
        self._lanes: dict[ConversationKey, Lane] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def reserve(self, key: ConversationKey, message_id: str) -> Slot:
        """Take the next place of a conversation."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key, self._events)
            self._empty.clear()
        slot = Slot(lane, message_id)
        lane.slots.append(slot)
        if len(lane.slots) == 1:
            self._group.create_task(self._run(lane), name=f"lane {key}")
        return slot

    def stop(self, key: ConversationKey, *, before: Slot | None = None) -> tuple[int, int]:
        """Stop one conversation. Returns how many turns were stopped and how many waiting ones dropped."""
        lane = self._lanes.get(key)
        return lane.stop(before=before) if lane else (0, 0)

    def stop_message(self, key: ConversationKey, message_id: str) -> tuple[int, int]:
        lane = self._lanes.get(key)
        return lane.stop_message(message_id) if lane else (0, 0)

    def leave_unprepared(self) -> None:
        """Give up what is still being prepared; it stays unfinished in the ledger."""
        for lane in tuple(self._lanes.values()):
            lane.leave_unprepared()

    def leave_all(self) -> None:
        """End every lane at once; what is unfinished stays so in the ledger."""
        for lane in tuple(self._lanes.values()):
            lane.leave()

    def stop_all(self, *, before: Slot | None = None) -> tuple[int, int]:
        """Stop every conversation; in the one of `before` only what came before it. Returns (stopped, dropped)."""
        counts = [lane.stop(before=before if before in lane.slots else None) for lane in tuple(self._lanes.values())]
        return sum(stopped for stopped, _ in counts), sum(dropped for _, dropped in counts)

    def counts(self) -> tuple[int, int]:
        """How many turns run and how many messages wait."""
        running = sum(1 for lane in self._lanes.values() if lane.running)
        return running, sum(len(lane.slots) for lane in self._lanes.values()) - running

    async def idle(self) -> None:
        """Wait until every lane is empty."""
        await self._empty.wait()

    async def _run(self, lane: Lane) -> None:
        await lane.run()
        del self._lanes[lane.key]
        if not self._lanes:
            self._empty.set()


async def _run_alone(work: Work) -> None:
    """Let what breaks in one turn end that one only; the lane goes on unless it is cancelled itself."""
    try:
        await work.run()
    except asyncio.CancelledError:
        if is_cancelled():
            raise
        log.exception("a turn broke off by itself")
    except Exception:
        log.exception("a turn broke in its lane")
