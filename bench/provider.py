"""A model provider on loopback that answers at once and notes when a request was whole and when its last byte left.

Plain blocking sockets in threads: it must cost next to nothing beside what is measured.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from dataclasses import dataclass, field

PIECES = 20


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _piece(text: str | None, finish: str | None = None) -> bytes:
    delta = {"content": text} if text else {}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return _event({"id": "c1", "object": "chat.completion.chunk", "model": "bench", "choices": [choice]})


def _usage() -> bytes:
    usage = {"prompt_tokens": 8000, "completion_tokens": PIECES, "total_tokens": 8000 + PIECES}
    return _event({"id": "c1", "object": "chat.completion.chunk", "model": "bench", "choices": [], "usage": usage})


BODY = b"".join(_piece("word ") for _ in range(PIECES)) + _piece(None, "stop") + _usage()
LAST = b"data: [DONE]\n\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@dataclass
class BenchProvider:
    """`delay_s` is waited before each answer. `arrived` and `left` are monotonic times, one pair a request."""

    delay_s: float = 0.0
    arrived: list[float] = field(default_factory=list)
    left: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def __enter__(self) -> BenchProvider:
        self._server = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.base_url = f"http://127.0.0.1:{self._server.getsockname()[1]}/v1"
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
            while (size := _read_request(connection)) is not None:
                self.arrived.append(time.monotonic())
                self.sizes.append(size)
                if self.delay_s:
                    time.sleep(self.delay_s)
                connection.sendall(HEAD + _chunk(BODY))
                connection.sendall(_chunk(LAST) + b"0\r\n\r\n")
                self.left.append(time.monotonic())


def _read_request(connection: socket.socket) -> int | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
    )
    left = length - len(body)
    while left > 0:
        left -= len(connection.recv(min(left, 262_144)))
    return length
