"""One writer of settings at a time: setup, the daemon and a second setup never interleave their writes."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from fermix.errors import Unavailable

WAIT_S = 5.0
PAUSE_S = 0.05


@contextmanager
def hold_settings(folder: Path, *, wait_s: float = WAIT_S) -> Generator[None]:
    """Hold the settings of a home for a short write; blocks. Raises: Unavailable when another writer keeps them."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, time.monotonic() + wait_s)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                text = "another program is writing the settings; try again shortly"
                raise Unavailable(text, user_text=text) from None
            time.sleep(PAUSE_S)
        else:
            return
