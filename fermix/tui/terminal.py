"""What Textual does not expect of a terminal: bytes that are no text, and that it is gone for good. `run_tui` holds the
watch for as long as the screen is up.

The kernel sends SIGHUP only to the session that the terminal controls. Everywhere else a vanished terminal is an
endless end of input, and the first frame that cannot be written ends the thread that writes, behind which the
event loop then waits for ever. So a thread of its own looks, and ends the process when the app cannot.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from textual.drivers.linux_driver import LinuxDriver

GONE = 128 + signal.SIGHUP  # the exit code of a program whose terminal hung up
LEAVE_MS = 1_000  # what the app may take to leave by itself


class TerminalDriver(LinuxDriver):
    """Textual's driver, for which one byte that is not UTF-8 (an old mouse report, a Latin-1 paste) is the end."""

    def run_input_thread(self) -> None:
        while True:
            try:
                super().run_input_thread()
            except UnicodeDecodeError:
                continue  # what came in that one read is lost, and nothing else
            return


@contextmanager
def watched(descriptors: Sequence[int], leave: Callable[[], object]) -> Generator[None]:
    """Call `leave`, from another thread, when a terminal hangs up; if this block then lasts, the process ends."""
    stop, stopped = os.pipe()
    watch = threading.Thread(target=_watch, args=(descriptors, stop, leave), name="terminal")
    watch.start()
    try:
        yield
    finally:
        os.close(stopped)
        watch.join()
        os.close(stop)


def _watch(descriptors: Sequence[int], stop: int, leave: Callable[[], object]) -> None:
    poll = select.poll()
    poll.register(stop, 0)
    for descriptor in descriptors:
        poll.register(descriptor, 0)  # only what is always told: that it hung up
    if any(descriptor == stop for descriptor, _ in poll.poll()):
        return
    for descriptor in descriptors:
        poll.unregister(descriptor)
    _let_go(descriptors)
    leave()
    if not poll.poll(LEAVE_MS):
        os._exit(GONE)


def _let_go(descriptors: Sequence[int]) -> None:
    """Point them nowhere: what is still written on the way out must not fail and change the exit code."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
