"""Who is at the other end of a Unix socket, as the system recorded it when it connected."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

MOST_ANCESTORS = 256  # deeper than any real tree, so that a race can never make an endless climb
SO_PEERPIDFD = 77  # Linux 6.5 and later; Python 3.11 has no name for it
SOL_LOCAL, LOCAL_PEERCRED, LOCAL_PEERPID = 0, 1, 2  # macOS: sys/un.h, likewise


@dataclass(frozen=True, slots=True)
class Peer:
    """The user and the process that connected. `held` is a descriptor of that very process, so that its number is
    never mistaken for a later one's; None when it had ended already, or where the system has no such thing.
    """

    uid: int
    pid: int
    held: int | None = None

    def close(self) -> None:
        """Let go of the process."""
        if self.held is not None:
            os.close(self.held)


def peer_of(sock: socket.socket) -> Peer:
    """Return who connected; the caller closes it. Raises: OSError when this is no connected Unix socket."""
    uid, pid = _credentials(sock)
    return Peer(uid, pid, _hold(sock, pid))


def is_attended(peer: Peer, daemon: int) -> bool:
    """Say whether a person may be behind a peer: it lives, can gain rights, and does not descend from the daemon.

    A program that is kept from gaining rights is a confined one. Whether it has a terminal says nothing, since any
    program can make itself one. Systems other than Linux tell none of this, and every peer counts as attended.
    """
    if sys.platform != "linux":
        return True
    if peer.held is None or is_descendant(peer.pid, daemon) or _has_no_new_privs(peer.pid):
        return False
    return not select.select([peer.held], [], [], 0)[0]  # asked last: what was read above was read of this process


def is_descendant(pid: int, of: int) -> bool:
    """Say whether a process was started, directly or not, by `of`; False once it has ended."""
    for _ in range(MOST_ANCESTORS):
        parent = _parent(pid)
        if parent in (0, of):
            return parent == of
        pid = parent
    return False


def _credentials(sock: socket.socket) -> tuple[int, int]:
    if sys.platform == "darwin":
        uid = struct.unpack_from("=II", sock.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, 76))[1]
        return uid, sock.getsockopt(SOL_LOCAL, LOCAL_PEERPID)
    pid, uid, _gid = struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return uid, pid


def _hold(sock: socket.socket, pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError:
        return _open(pid)  # an older kernel: the process is held from now on instead of from its connecting on


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _has_no_new_privs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return "\nNoNewPrivs:\t0\n" not in status


def _parent(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(text.rpartition(")")[2].split()[1])
