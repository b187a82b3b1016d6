"""Tell a cancellation that is meant for us from one that an adapter or a library has let out of itself.

Called where such a call is awaited: the first must pass, the second is a failure of that call like any other.
"""

from __future__ import annotations

import asyncio


def is_cancelled() -> bool:
    """Tell whether somebody asked the running task to end."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
