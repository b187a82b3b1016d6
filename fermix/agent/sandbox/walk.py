"""Walk through an open folder by descriptors, past closed places and never along a link. Used by the file tools.

A walk of any size is worked off in short pieces, so that a worker is soon free again and a stopped turn leaves at
most one piece running.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Generator
from typing import Generic, NamedTuple, TypeVar

from fermix.agent.sandbox.closed import Closed
from fermix.workers import Workers

T = TypeVar("T")

MOST_DEPTH = 64  # each level holds a descriptor while it is walked
PIECE_S = 0.1
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Parts = tuple[str, ...]


class Entry(NamedTuple):
    """Something below the folder. `holder` is a descriptor of the folder it lies in, open until the next step.

    `is_cut`: a folder that was wanted and is not gone into, because it lies too deep.
    """

    parts: Parts
    is_folder: bool
    holder: int
    is_cut: bool

    def open(self, closed: Closed) -> int | None:
        """Open it for reading if it is a regular file that is not closed; None if not, or if it is gone."""
        try:
            descriptor = os.open(self.parts[-1], FILE_FLAGS, dir_fd=self.holder)
        except OSError:
            return None
        state = os.fstat(descriptor)
        if stat.S_ISREG(state.st_mode) and not closed.holds(state):
            return descriptor
        os.close(descriptor)
        return None


def walk(descriptor: int, closed: Closed, enter: Callable[[Parts], bool], above: Parts = ()) -> Generator[Entry]:
    """Give all below a folder in the order of names; go into those folders that `enter` wants. Closes `descriptor`."""
    try:
        for name, is_folder in _listing(descriptor, closed):
            parts = (*above, name)
            wanted = is_folder and enter(parts)
            is_deep = len(parts) >= MOST_DEPTH
            yield Entry(parts, is_folder, descriptor, wanted and is_deep)
            if wanted and not is_deep and (below := _open_folder(name, descriptor, closed)) is not None:
                yield from walk(below, closed, enter, parts)
    finally:
        os.close(descriptor)


def _listing(descriptor: int, closed: Closed) -> list[tuple[str, bool]]:
    """Return the names and whether each is a folder, without what is closed: by number, which takes no call each.

    What is opened of it is judged again, so another disk that is mounted here is no way in.
    """
    device = os.fstat(descriptor).st_dev
    with os.scandir(descriptor) as entries:
        rows = [
            (entry.name, entry.is_dir(follow_symlinks=False))
            for entry in entries
            if (device, entry.inode()) not in closed.known
        ]
    return sorted(rows)


def _open_folder(name: str, holder: int, closed: Closed) -> int | None:
    try:
        descriptor = os.open(name, FOLDER_FLAGS, dir_fd=holder)
    except OSError:
        return None  # unreadable, gone, or a link by now
    if closed.holds(os.fstat(descriptor)):
        os.close(descriptor)
        return None
    return descriptor


class Pieces(Generic[T]):
    """What a long walk finds, worked off on the workers. A step that finds nothing is None."""

    def __init__(self, steps: Generator[T | None], *, most: int, timeout_s: float) -> None:
        self.found: list[T] = []
        self.finished = False
        self._steps = steps
        self._most = most
        self._timeout_s = timeout_s
        self._busy = threading.Lock()

    async def run(self, workers: Workers) -> None:
        """Go on until the end, until `most` are found, or for `timeout_s`; `finished` says whether it was the end."""
        stop_at = time.monotonic() + self._timeout_s
        try:
            while not self.finished and len(self.found) < self._most and time.monotonic() < stop_at:
                await workers.run(self._piece)
        finally:
            await workers.run(self._close)

    def _piece(self) -> None:
        stop_at = time.monotonic() + PIECE_S
        with self._busy:
            while len(self.found) < self._most and time.monotonic() < stop_at:
                try:
                    step = next(self._steps)
                except StopIteration:
                    self.finished = True
                    return
                if step is not None:
                    self.found.append(step)

    def _close(self) -> None:
        with self._busy:
            self._steps.close()
