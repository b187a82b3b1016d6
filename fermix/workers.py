"""The one bounded thread pool for blocking calls: files, hashing, name look-ups, large JSON.

The function is plain, short and pure; a thread cannot be cancelled, only no longer waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS = 4  # blocking calls are short; more threads only cost memory in an idle daemon


class Workers:
    """Made by the composition root; threads start when first needed."""

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._pool = ThreadPoolExecutor(max_threads, thread_name_prefix="worker")

    async def run(self, fn: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: fn(*args, **kwargs))

    async def hand_over(self, fn: Callable[P, T], drop: Callable[[T], None], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`; what `fn` returns once nobody waits for it any more is given to `drop`, so that nothing is lost."""
        running = self._pool.submit(lambda: fn(*args, **kwargs))
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            running.add_done_callback(lambda ended: _drop_result(ended, drop))
            raise

    def post(self, fn: Callable[[], None]) -> None:
        """Let it run by itself; nobody learns how it ended. Does nothing once closed."""
        with suppress(RuntimeError):
            self._pool.submit(fn)

    def close(self) -> None:
        """Let running calls end by themselves; start no waiting one."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _drop_result(ended: Future[T], drop: Callable[[T], None]) -> None:
    if not ended.cancelled() and ended.exception() is None:
        drop(ended.result())
