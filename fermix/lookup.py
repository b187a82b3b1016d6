"""Find the addresses of a name that somebody else chose. `net.py` calls it.

The system's resolver blocks, and whoever serves a name can let it hang for half a minute. So each look-up has a
thread of its own: it takes none from the pool that providers are looked up in, and a daemon that stops does not wait.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from contextlib import suppress

MOST_AT_ONCE = 16  # hanging ones included; past that the answer is an error at once

Addresses = tuple[str, ...]


class LookUps:
    """Those of one event loop."""

    def __init__(self) -> None:
        self._running = 0

    async def find(self, host: str, port: int, timeout_s: float) -> Addresses:
        """Return every address, in the order to try them. Raises: TimeoutError, OSError, ValueError."""
        if self._running >= MOST_AT_ONCE:
            raise OSError(errno.EAGAIN, "too many names are being looked up")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Addresses] = loop.create_future()
        thread = threading.Thread(target=self._ask, args=(host, port, loop, answer), name="lookup", daemon=True)
        thread.start()
        self._running += 1
        async with asyncio.timeout(timeout_s):
            return await answer

    def _ask(self, host: str, port: int, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Addresses]) -> None:
        """The thread's whole life. What comes after the loop was closed is for nobody."""
        found: Addresses | OSError | ValueError
        try:
            answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = tuple(dict.fromkeys(str(address[0]) for *_, address in answers))
        except (OSError, ValueError) as error:
            found = error
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(self._end, answer, found)

    def _end(self, answer: asyncio.Future[Addresses], found: Addresses | OSError | ValueError) -> None:
        self._running -= 1
        if answer.done():  # nobody waits any more
            return
        if isinstance(found, tuple):
            answer.set_result(found)
        else:
            answer.set_exception(found)
