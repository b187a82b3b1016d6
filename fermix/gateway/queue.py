"""One FIFO lane per conversation: at most one turn runs in each, the others wait in order of arrival.

A message reserves its slot before anything slow is done for it, so order is fixed at the door. A slot is then
filled with work or released (a command, an empty message). Only a stop ends running work. Different lanes run
at the same time. A lane is forgotten when it is empty.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol

from fermix.events import Events, QueueChanged
from fermix.message import ConversationKey

log = logging.getLogger(__name__)

MOST_WAITING = 50  # of one lane, and a lane is one person or one room
MOST_WAITING_BYTES = 1_000_000


class Work(Protocol):
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

    def drop(self) -> None:
        """The work was stopped before it began; settle it."""
        ...


class Slot:
    """A place in a lane. `promised`: an earlier process took the message, so a full lane refuses it no more."""

    def __init__(self, lane: Lane, message_id: str) -> None:
        self.message_id = message_id
        self.stopped = False
        self.promised = False
        self.work: Work | None = None
        self.size_bytes = 0
        self.decided = asyncio.Event()
        self._lane = lane

    def fill(self, work: Work, size_bytes: int = 0) -> bool:
        """Hand over the work; it runs when the slot's turn comes, or is dropped when a stop came first.

        False, and nothing taken, when too much waits here already.
        """
        if not (self.stopped or self.promised or self._lane.admits(self, size_bytes)):
            return False
        self.size_bytes = size_bytes
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


class Lane:
    """The slots of one conversation; the first is the running one."""

    def __init__(self, key: ConversationKey, events: Events) -> None:
        self.key = key
        self.slots: deque[Slot] = deque()
        self.running: Slot | None = None
        self._events = events

    def changed(self) -> None:
        running = self.running.message_id if self.running else None
        waiting = tuple(slot.message_id for slot in self.slots if slot is not self.running and slot.work)
        self._events.emit(QueueChanged(self.key, running, waiting))

    async def run(self) -> None:
        """Run every slot in order until none is left. Work that raises is logged and ends only itself."""
        while self.slots:
            slot = self.slots[0]
            await slot.decided.wait()
            if slot.work is not None:
                self.running = slot
                self.changed()
                try:
                    await slot.work.run()
                except Exception:
                    log.exception("a turn broke in its lane")
            self.running = None
            self.slots.popleft()
        self.changed()

    def admits(self, slot: Slot, size_bytes: int) -> bool:
        """Tell whether one more may wait; what can run at once always may."""
        waiting = [other for other in self.slots if other is not self.slots[0] and other.work]
        total = size_bytes + sum(other.size_bytes for other in waiting)
        return slot is self.slots[0] or (len(waiting) < MOST_WAITING and total <= MOST_WAITING_BYTES)

    def leave(self) -> None:
        """End at once and settle nothing."""
        for slot in self.slots:
            if slot is self.running and slot.work is not None:
                slot.work.leave()
            else:
                slot.work = None
                slot.release()

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
        if slot.stopped:
            return ""
        slot.stopped = True
        if slot.work is not None:
            slot.work.drop()
            slot.work = None
            return "dropped"
        return ""


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
