"""Who is at the other end of a socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fermix.native.peer import Peer, is_descendant, peer_of

CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"


def test_the_peer_is_the_process_that_connected(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        client = subprocess.Popen([sys.executable, "-c", CONNECT, str(path)])
        listener.settimeout(5)
        connection, _ = listener.accept()
        with connection:
            peer = peer_of(connection)
            related = is_descendant(peer.pid, os.getpid())

    assert client.wait(5) == 0
    assert (peer, related) == (Peer(os.getuid(), client.pid), True)


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
