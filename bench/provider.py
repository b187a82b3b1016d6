"""A model provider on loopback that answers at once and notes when a request was whole and when its last byte left.

Plain blocking sockets in threads: it must cost next to nothing beside what is measured.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

PIECES = ("word ",) * 20


def _event(value: object) -> bytes:
    return _chunk(b"data: " + json.dumps(value).encode() + b"\n\n")


def _piece(text: str | None, finish: str | None = None) -> bytes:
    delta = {"content": text} if text else {}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event({"id": "c1", "object": "chat.completion.chunk", "model": "bench", "choices": [choice]})


def _usage() -> bytes:
    usage = {"prompt_tokens": 8000, "completion_tokens": 20, "total_tokens": 8020}
    return _event({"id": "c1", "object": "chat.completion.chunk", "model": "bench", "choices": [], "usage": usage})


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


LAST = _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class BenchProvider:
    """`delay_s` is waited before each answer, `piece_s` after each piece of it; `gate` holds all of them back until it
    is set. `arrived` and `left` are monotonic
    times, one pair a request: its last byte read, its answer's last byte about to be written.
    """

    delay_s: float = 0.0
    piece_s: float = 0.0
    pieces: Sequence[str] = PIECES
    gate: threading.Event | None = None
    arrived: list[float] = field(default_factory=list)
    left: list[float] = field(default_factory=list)
    last_body: bytes = b""

    def __enter__(self) -> BenchProvider:
        self._server = socket.create_server(("127.0.0.1", 0), backlog=1_024)
        self.base_url = f"http://127.0.0.1:{self._server.getsockname()[1]}/v1"
        self._pieces = [_piece(piece) for piece in self.pieces]
        self._tail = _piece(None, "stop") + _usage()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while (body := _read_request(connection)) is not None:
                    self._answer(connection, body)
            except (BrokenPipeError, ConnectionResetError):
                return  # a client that is done or was ended

    def _answer(self, connection: socket.socket, body: bytes) -> None:
        self.arrived.append(time.monotonic())
        self.last_body = body
        if self.gate is not None:
            self.gate.wait()
        if self.delay_s:
            time.sleep(self.delay_s)
        if self.piece_s:
            self._drip(connection)
        else:
            connection.sendall(HEAD + b"".join(self._pieces) + self._tail)
        self.left.append(time.monotonic())
        connection.sendall(LAST)

    def _drip(self, connection: socket.socket) -> None:
        connection.sendall(HEAD)
        for piece in self._pieces:
            connection.sendall(piece)
            time.sleep(self.piece_s)
        connection.sendall(self._tail)


def _read_request(connection: socket.socket) -> bytes | None:
    """Return the body of the next request, None at the end of the connection."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, start = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
    )
    parts, left = [start], length - len(start)
    while left > 0 and (more := connection.recv(min(left, 262_144))):
        parts.append(more)
        left -= len(more)
    return b"".join(parts)
