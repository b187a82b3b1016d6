"""Who is at the other end of a Unix socket, as the system recorded it when it connected."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from fermix.native.library import native

MOST_ANCESTORS = 256  # deeper than any real tree, so that a race can never make an endless climb


@dataclass(frozen=True, slots=True)
class Peer:
    """The user and the process that connected. The process may have ended since."""

    uid: int
    pid: int


def peer_of(sock: socket.socket) -> Peer:
    """Return who connected. Raises: OSError when this is no connected Unix socket."""
    uid, pid = native.peer_credentials(sock.fileno())
    return Peer(uid, pid)


def is_descendant(pid: int, of: int) -> bool:
    """Say whether a process was started, directly or not, by `of`; False once it has ended."""
    for _ in range(MOST_ANCESTORS):
        parent = _parent(pid)
        if parent in (0, of):
            return parent == of
        pid = parent
    return False


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(text.rpartition(")")[2].split()[1])
