"""The other end of the daemon's socket, in a thread of its own: answers each line as the script says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

Answer = Callable[[dict[str, object]], bytes | None]
"""From a request to the bytes to send; None closes the connection."""


class Peer:
    """A Unix socket server for one connection after the other. `asked` holds what came."""

    def __init__(self, path: Path, answer: Answer) -> None:
        self.asked: list[dict[str, object]] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            try:
                self._connection, _ = self._listener.accept()
            except OSError:
                return
            with self._connection as connection:
                connection.settimeout(5)
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        try:
            for line in connection.makefile("rb"):
                request = json.loads(line)
                self.asked.append(request)
                reply = self._answer(request)
                if reply is None:
                    return
                connection.sendall(reply)
        except OSError:
            return


@contextmanager
def answering(path: Path, answer: Answer) -> Generator[Peer]:
    peer = Peer(path, answer)
    try:
        yield peer
    finally:
        peer.close()


def result(request: dict[str, object], **fields: object) -> bytes:
    return line({"jsonrpc": "2.0", "id": request["id"], "result": fields})


def error(request: dict[str, object], code: int, message: str) -> bytes:
    return line({"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}})


def event(name: str, **params: object) -> bytes:
    return line({"jsonrpc": "2.0", "method": name, "params": params})


def line(message: dict[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"
