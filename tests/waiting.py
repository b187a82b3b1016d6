"""Waiting for what a child process, a thread or a server does: no event of ours tells of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

WAIT_S = 5.0
LOOK_S = 0.002


async def until(happened: Callable[[], object]) -> None:
    """Let the loop go on until it is so. Raises: TimeoutError."""
    async with asyncio.timeout(WAIT_S):
        while not happened():
            await asyncio.sleep(LOOK_S)
