"""The real daemon, with a watch on its event loop: how much CPU did the longest callback take on the loop's thread.

SIGUSR1 forgets what was seen so far; at the end the figure, in milliseconds, is written to FERMIX_BENCH_LONGEST.
Time of the thread and not of the wall: what others on a busy machine take away is not ours.
"""

from __future__ import annotations

import asyncio.events
import os
import signal
import time
from pathlib import Path

from fermix.cli.verbs import run


class Watch:
    """Stands around every callback that the loop runs, steps of tasks included."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._run = asyncio.events.Handle._run

    def __call__(self, handle: asyncio.Handle) -> None:
        began_s = time.thread_time()
        self._run(handle)
        self.longest_s = max(self.longest_s, time.thread_time() - began_s)

    def forget(self, *_: object) -> None:
        self.longest_s = 0.0


def main() -> int:
    watch = Watch()
    asyncio.events.Handle._run = lambda handle: watch(handle)
    signal.signal(signal.SIGUSR1, watch.forget)
    try:
        return run.main([])
    finally:
        Path(os.environ["FERMIX_BENCH_LONGEST"]).write_text(f"{watch.longest_s * 1000}", encoding="ascii")


if __name__ == "__main__":
    raise SystemExit(main())
