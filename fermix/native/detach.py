"""Start a program that outlives its starter: the daemon, when the command line or the screen starts one."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fermix.native.sweep import keep


def start_detached(argv: Sequence[str], *, env: Mapping[str, str], output: Path) -> int:
    """Start a program in a session of its own and return its pid; quick, and waits for nothing.

    `argv[0]` is an absolute path. What it prints is appended to `output` (0600). Raises: OSError.
    """
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(output), append, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(argv[0], list(argv), env, file_actions=actions, setsid=True)
    keep(pid)
    return pid
