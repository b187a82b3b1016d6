"""Something that goes on beside a block: a typing sign, a draft that grows. Nothing of it outlives the block."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def background(work: Coroutine[None, None, None], name: str) -> AsyncGenerator[None]:
    """Run `work` until the block is left, which cancels it and waits for its end. `name` is the task's."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work, name=name)
        try:
            yield
        finally:
            task.cancel()
