"""Who is at the other end of a socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from fermix.native.peer import SO_PEERPIDFD, Peer, is_attended, is_descendant, peer_of

CONNECT = """
import ctypes, socket, sys
if sys.argv[2] == "confined":
    ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.recv(1)
"""
UNRELATED = 1 << 22  # above every process number


@contextmanager
def connected(folder: Path, how: str = "free") -> Generator[tuple[Peer, subprocess.Popen[bytes], socket.socket]]:
    """A client in a process of its own, and who the system says it is."""
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(5)
        client = subprocess.Popen([sys.executable, "-c", CONNECT, str(path), how])
        connection, _ = listener.accept()
        with connection, closing(peer_of(connection)) as peer:
            yield peer, client, connection
        assert client.wait(5) == 0


def test_the_peer_is_the_process_that_connected(tmp_path: Path) -> None:
    with connected(tmp_path) as (peer, client, _):
        assert (peer.uid, peer.pid) == (os.getuid(), client.pid)
        assert peer.held is not None
        assert is_descendant(peer.pid, os.getpid())


def test_the_peer_is_held_by_what_the_socket_knows_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 3, approvals: by SO_PEERPIDFD, so that a number that was given again meanwhile holds nobody else."""
    one, other = socket.socketpair()
    with one, other:
        try:
            os.close(one.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD))
        except OSError:
            pytest.skip("this kernel does not tell the process behind a socket")
    monkeypatch.setattr(os, "pidfd_open", lambda pid: pytest.fail("looked up by its number"))
    with connected(tmp_path) as (peer, _, _):
        assert peer.held is not None


@pytest.mark.parametrize(
    ("how", "daemon", "attended"),
    [("free", UNRELATED, True), ("free", os.getpid(), False), ("confined", UNRELATED, False)],
    ids=["free", "started by the daemon", "confined"],
)
def test_a_spawned_or_confined_program_is_not_attended(tmp_path: Path, how: str, daemon: int, attended: bool) -> None:
    """Issue 3, approvals: a descendant of the daemon, or a peer with no_new_privs, is unattended."""
    with connected(tmp_path, how) as (peer, _, _):
        assert is_attended(peer, daemon) is attended


def test_a_program_that_is_gone_is_not_attended(tmp_path: Path) -> None:
    """Its number may belong to another process by now; the held one tells."""
    with connected(tmp_path) as (peer, client, connection):
        connection.close()
        assert client.wait(5) == 0

        assert not is_attended(peer, UNRELATED)
        assert not is_attended(Peer(peer.uid, os.getpid()), UNRELATED)
        assert not is_attended(Peer(peer.uid, os.getpid(), peer.held), UNRELATED)


def test_only_a_connected_unix_socket_has_a_peer() -> None:
    with socket.socket(socket.AF_INET) as sock:
        assert peer_of(sock).pid == 0


def test_descent_is_followed_over_generations() -> None:
    script = "exec 3<&0; sh -c 'read x <&3; :' & echo $!; wait"  # a job in the background has no stdin of its own
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())

        assert is_descendant(grandchild, shell.pid)
        assert is_descendant(grandchild, os.getpid())
        assert not is_descendant(os.getpid(), grandchild)
        shell.kill()


@pytest.mark.parametrize("pid", [1, 1 << 21])
def test_strangers_and_the_dead_are_no_descendants(pid: int) -> None:
    assert not is_descendant(pid, os.getpid())
