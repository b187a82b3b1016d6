"""End processes for good: whole groups, whole trees, and the orphans that left both. Used by `group.py`.

A process leaves its group by a new session and its parent by a double fork. So the daemon is a subreaper: orphans
become its own children and are told apart by the marker in their environment. Only processes that a child of ours
started are ever signalled or reaped; each by its own number, never all at once.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
from collections.abc import Collection
from pathlib import Path

from fermix.native.library import native

log = logging.getLogger(__name__)

TASKS = Path("/proc/self/task")


def kill_group(pgid: int, signum: int) -> None:
    """Signal a process group. One without members is no error; one that is not ours to signal is logged."""
    try:
        native.kill_group(pgid, signum)
    except ProcessLookupError:
        return
    except PermissionError:
        log.warning("process group of another user, cannot be signalled: %d", pgid)


def sweep_tree(root_pid: int, signum: int, *, marker: str = "", spared: Collection[int] = ()) -> int:
    """Signal every descendant of a process, not itself; return how many were alive, so that 0 means none is left.

    With a `marker` ("NAME=value", as the processes have it in their environment) also our adopted children that
    carry it, and those that carry no such name, except the `spared`. One that is just being replaced by exec counts
    and is not signalled: look again. Starts no process and allocates nothing, so it works with the process table
    full. Without /proc (macOS) only the group can be signalled and this returns 0.
    """
    try:
        return native.sweep(root_pid, signum, marker.encode("ascii"), frozenset(spared))
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        return 0


def become_subreaper() -> None:
    """Let orphaned descendants become our children. May be called again; does nothing on macOS."""
    try:
        native.become_subreaper()
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise


def die_with_parent(parent_pid: int) -> None:
    """Be killed when the thread that started us ends. For our own programs, right after their start.

    Raises: ProcessLookupError when `parent_pid` is gone already; OSError with ENOSYS on macOS.
    """
    native.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent_pid:
        raise ProcessLookupError(errno.ESRCH, f"parent {parent_pid} has ended")


def children() -> frozenset[int]:
    """Return the numbers of all our children, ended ones that nobody waited for included."""
    found: set[int] = set()
    for task in TASKS.glob("*/children"):
        try:
            found.update(int(word) for word in task.read_text(encoding="ascii").split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread has ended meanwhile; its children went to another one
    return frozenset(found)


def reap_adopted(spared: Collection[int]) -> int:
    """Take ended orphans off the process table and return how many there were.

    Orphans are our children in a session that is not ours, except the `spared`.
    """
    our_session = os.getsid(0)
    reaped = 0
    for pid in children().difference(spared):
        letter, session = _state(pid)
        if letter == "Z" and session != our_session:
            os.waitpid(pid, os.WNOHANG)
            reaped += 1
    return reaped


def _state(pid: int) -> tuple[str, int]:
    """The letter and the session of a process, from e.g. `17 (a name) Z 1 17 17 0 ...`."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "", 0
    letter, _parent, _group, session = text.rpartition(")")[2].split()[:4]
    return letter, int(session)
