"""End processes for good: whole groups, whole trees, and the orphans that left both. Used by `group.py`.

A process leaves its group by a new session and its parent by a double fork. So the daemon is a subreaper: orphans
become its own children and are told apart by the marker in their environment. Only processes that a child of ours
started are ever signalled or reaped; each by its own number, never all at once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from fermix.native.library import native

log = logging.getLogger(__name__)

TASKS = Path("/proc/self/task")
MOST_TREES = 1024  # as in _native.c
SET_DEATH_SIGNAL: Final = 1  # as in linux/prctl.h
SET_SUBREAPER: Final = 36


@dataclass(eq=False, slots=True)
class Tree:
    """What a command is known by. `swept` is told after every walk how many of it were left before."""

    root_pid: int
    marker: bytes
    """NAME=value, as its processes have it in their environment; of equal length in all trees."""
    elders: frozenset[int]
    """Children of ours that were there before it, and so cannot be orphans of it."""
    swept: Callable[[int], None] = field(default=lambda left: None)


_kept: set[int] = set()  # processes that somebody else waits for: leaders of groups, detached programs
_living: dict[Tree, None] = {}
_rounds: WeakKeyDictionary[asyncio.AbstractEventLoop, _Round] = WeakKeyDictionary()


def keep(pid: int) -> None:
    """Never take this process for an orphan."""
    _kept.add(pid)


def enter(tree: Tree) -> None:
    """Count a command among the living: its leader is no orphan, and its orphans are nobody else's."""
    keep(tree.root_pid)
    _living[tree] = None


def leave(tree: Tree) -> None:
    """Forget a command whose leader has been reaped."""
    _kept.discard(tree.root_pid)
    _living.pop(tree, None)


def ask_for_sweep(tree: Tree, signum: int) -> None:
    """Have a tree swept in the next turn of the event loop, in one walk with all others that are asked for."""
    loop = asyncio.get_running_loop()
    _rounds.setdefault(loop, _Round()).add(loop, tree, signum)


def kill_group(pgid: int, signum: int) -> None:
    """Signal a process group. One without members is no error; one that is not ours to signal is logged."""
    try:
        native.kill_group(pgid, signum)
    except ProcessLookupError:
        return
    except PermissionError:
        log.warning("process group of another user, cannot be signalled: %d", pgid)


def sweep(wanted: Mapping[Tree, int]) -> list[int]:
    """Signal every descendant of each tree, not its root, and every orphan that carries its marker or none; take
    ended orphans off the process table. Returns how many of each were left, so that 0 means none is.

    One that is just being replaced by exec counts and is not signalled: look again. Starts no process and opens
    nothing beyond its reserve, so it works with the process table full. Without /proc (macOS) only the group can be
    signalled and nothing is ever left.
    """
    others = [(tree, 0) for tree in _living if tree not in wanted]
    trees = [*wanted.items(), *others][:MOST_TREES]
    given = tuple((tree.root_pid, signum, tree.marker, tree.elders) for tree, signum in trees)
    try:
        left = native.sweep(given, _kept)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        return [0] * len(wanted)
    return [*left[: len(wanted)], *[1] * (len(wanted) - len(left))]  # those without a place are looked at again


def become_subreaper() -> None:
    """Let orphaned descendants become our children. May be called again; does nothing on macOS."""
    try:
        native.control(SET_SUBREAPER, 1)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the thread that started us ends. For our own programs, right after their start.

    Raises: ProcessLookupError when `parent_pid` is gone already; OSError with ENOSYS on macOS.
    """
    native.control(SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent_pid:
        raise ProcessLookupError(errno.ESRCH, f"parent {parent_pid} has ended")


def elders() -> frozenset[int]:
    """Return the children of ours that a command started now cannot have left: all that nobody is known to wait for."""
    return children().difference(_kept)


def children() -> frozenset[int]:
    """Return the numbers of all our children, ended ones that nobody waited for included."""
    found: set[int] = set()
    for task in TASKS.glob("*/children"):
        try:
            found.update(int(word) for word in task.read_text(encoding="ascii").split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended meanwhile; its children went to another one
    return frozenset(found)


class _Round:
    """What one turn of the event loop asked for."""

    def __init__(self) -> None:
        self._wanted: dict[Tree, int] = {}

    def add(self, loop: asyncio.AbstractEventLoop, tree: Tree, signum: int) -> None:
        if not self._wanted:
            loop.call_soon(self._walk)
        if self._wanted.get(tree) != signal.SIGKILL:
            self._wanted[tree] = signum

    def _walk(self) -> None:
        wanted, self._wanted = self._wanted, {}
        for tree, left in zip(wanted, sweep(wanted), strict=True):
            tree.swept(left)
