"""One command with all it starts, owned from its first moment to the last sweep. Used by `child.py` only.

The end is noticed by the event loop itself and not by a task, so it needs nobody who still waits. The leader is
reaped last: as long as it is not, its number cannot become the number of a stranger's group. Lives on one event
loop, in one thread.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fermix.native.sweep import Tree, ask_for_sweep, become_subreaper, elders, enter, kill_group, leave, sweep

log = logging.getLogger(__name__)

MARKER = "FERMIX_CHILD"
SWEEP_PAUSE_S = 0.002  # a killed process needs about a millisecond to be gone
MOST_SWEEPS = 500  # a second; only a process in a dead file system outlives that
CHUNK_BYTES = 65_536
MOST_DRAINED_BYTES = 4 * 1_048_576  # four times the largest pipe of an ordinary user


@dataclass(frozen=True, slots=True)
class Streams:
    """A command's standard streams by the names of `subprocess`: stdin DEVNULL, PIPE or an open file, stdout PIPE,
    stderr PIPE or STDOUT; and the other descriptors that it gets.
    """

    stdin: int
    stdout: int
    stderr: int
    passed: Sequence[int] = ()


class ProcessGroup:
    """A started command in a session of its own. `stdin`, `stdout` and `stderr` are our ends of its pipes.

    Raises: OSError when the program cannot be started.
    """

    def __init__(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], streams: Streams) -> None:
        self._loop = asyncio.get_running_loop()
        marker, older = secrets.token_hex(16), elders()
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._walks_left = MOST_SWEEPS
        become_subreaper()
        # The pipes are made here: Popen of Python 3.11.2 loses those it made when it then runs out of descriptors.
        with ExitStack() as ours, ExitStack() as its:
            stdin, self.stdin = _read_by_child(streams.stdin, ours, its)
            stdout, self.stdout = _written_by_child(streams.stdout, ours, its)
            stderr, self.stderr = _written_by_child(streams.stderr, ours, its)
            self.process = subprocess.Popen(
                argv,
                cwd=cwd,
                env={**env, MARKER: marker},
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=streams.passed,
                start_new_session=True,
            )
            self.pid = self.process.pid
            self._tree = Tree(self.pid, f"{MARKER}={marker}".encode("ascii"), older, self._swept)
            enter(self._tree)
            self._watch_exit()
            ours.pop_all()

    def signal_all(self, signum: int) -> None:
        """Signal the group and every descendant outside of it; nothing once all have ended."""
        if not self.ended.done():
            kill_group(self.pid, signum)
            ask_for_sweep(self._tree, signum)

    async def stop(self, grace_s: float) -> None:
        """Ask to end, wait a little, then kill, always. Returns when all are gone."""
        try:
            self.signal_all(signal.SIGTERM)
            await asyncio.wait([self.exited], timeout=grace_s)
        finally:
            await self.kill()

    async def kill(self) -> None:
        """Kill at once. Returns when all are gone."""
        self.signal_all(signal.SIGKILL)
        await self.gone()

    async def gone(self) -> None:
        """Wait until nothing is left, however often cancelled meanwhile; then that goes on.

        Bounded, because a process in a dead file system cannot be killed.
        """
        cancelled: asyncio.CancelledError | None = None
        until = self._loop.time() + 2 * MOST_SWEEPS * SWEEP_PAUSE_S
        while not self.ended.done() and (left_s := until - self._loop.time()) > 0:
            try:
                await asyncio.wait([self.ended], timeout=left_s)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled

    @property
    def exit_code(self) -> int:
        """Negative when a signal ended the leader; one that cannot be killed counts as killed."""
        code: int | None = self.process.returncode
        return -signal.SIGKILL if code is None else code

    def _watch_exit(self) -> None:
        try:
            watch = exit_descriptor(self.pid)
        except OSError:
            sweep({self._tree: signal.SIGKILL})
            kill_group(self.pid, signal.SIGKILL)
            self.process.wait()
            leave(self._tree)
            raise
        self._loop.add_reader(watch, self._on_exit, watch)

    def _on_exit(self, watch: int) -> None:
        self._loop.remove_reader(watch)
        os.close(watch)
        kill_group(self.pid, signal.SIGKILL)
        self.exited.set_result(None)
        self._look_again()

    def _look_again(self) -> None:
        if not self.ended.done():
            ask_for_sweep(self._tree, signal.SIGKILL)

    def _swept(self, left: int) -> None:
        """Once the leader has ended, have it looked again until nobody is left, then reap the leader."""
        if not self.exited.done() or self.ended.done():
            return
        self._walks_left -= 1
        if left and self._walks_left > 0:
            self._loop.call_later(SWEEP_PAUSE_S, self._look_again)
            return
        if left:
            log.error("processes that cannot be killed: %d, started by pid %d", left, self.pid)
        self.process.wait()
        leave(self._tree)
        self.ended.set_result(None)


def exit_descriptor(pid: int) -> int:
    """Return a descriptor that turns readable when this child of ours has ended; waiting for it reaps nothing."""
    if sys.platform != "darwin":
        return os.pidfd_open(pid)
    queue = select.kqueue()
    try:
        event = select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD | select.KQ_EV_ONESHOT, select.KQ_NOTE_EXIT)
        queue.control([event], 0)
        return os.dup(queue.fileno())
    finally:
        queue.close()


def _read_by_child(wish: int, ours: ExitStack, its: ExitStack) -> tuple[int, IO[bytes] | None]:
    """Return the child's end, which is closed here once it has its own, and ours of a pipe."""
    if wish >= 0:
        return wish, None
    if wish != subprocess.PIPE:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        its.callback(os.close, nothing)
        return nothing, None
    reading, writing = os.pipe()
    its.callback(os.close, reading)
    return reading, ours.enter_context(os.fdopen(writing, "wb", buffering=0))


def _written_by_child(wish: int, ours: ExitStack, its: ExitStack) -> tuple[int, IO[bytes] | None]:
    if wish != subprocess.PIPE:
        return wish, None  # stderr that goes where stdout goes
    reading, writing = os.pipe()
    its.callback(os.close, writing)
    return writing, ours.enter_context(os.fdopen(reading, "rb", buffering=0))


class Pipe:
    """The reading end of a child's stream; hands over chunks of bytes as they come."""

    def __init__(self, file: IO[bytes], take: Callable[[bytes], None]) -> None:
        self._file = file
        self._take = take
        self._loop = asyncio.get_running_loop()
        os.set_blocking(file.fileno(), False)
        self._loop.add_reader(file.fileno(), self._read_some)

    def drain(self) -> None:
        """Hand over what is in the pipe now."""
        read_bytes = 0
        while not self._file.closed and read_bytes < MOST_DRAINED_BYTES and (got := self._read_some()):
            read_bytes += got

    def close(self) -> None:
        """Hand over what is in the pipe now, then close it; what comes later is lost on purpose."""
        self.drain()
        self._close()

    def _read_some(self) -> int:
        try:
            chunk = os.read(self._file.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return 0
        if chunk:
            self._take(chunk)
        else:
            self._close()
        return len(chunk)

    def _close(self) -> None:
        if not self._file.closed:
            self._loop.remove_reader(self._file.fileno())
            self._file.close()
