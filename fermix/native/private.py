"""What the daemon holds stays its own: no other program of its user reads its memory or its variables.

Called once at its start. Then the system lets nobody but root look into it, itself excepted, and writes no core of it;
so what it uses is asked of itself (`used`), not read from outside.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fermix.native.library import native

SET_DUMPABLE: Final = 4  # as in linux/prctl.h
MEMORY = Path("/proc/self/smaps_rollup")
FILES = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class Used:
    """Memory of this process, what it shares counted in part, and open files; None where the system does not say."""

    memory_bytes: int | None
    open_files: int | None


def become_private() -> None:
    """Do it for this process until it runs another program. Does nothing on macOS."""
    try:
        native.control(SET_DUMPABLE, 0)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise


def used() -> Used:
    """Blocking, about a millisecond."""
    try:
        lines = MEMORY.read_text(encoding="ascii").splitlines()
        files = sum(1 for _ in FILES.iterdir())
    except OSError:
        return Used(None, None)
    kib = (line.split()[1] for line in lines if line.startswith("Pss:"))
    return Used(next((int(number) * 1024 for number in kib), None), files)
