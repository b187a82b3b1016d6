"""Where stolen goods would arrive: servers on loopback that keep every byte of TCP and UDP that they are ever sent,
and a small web. One address of loopback stands for the public internet; another one is what it is.
"""

from __future__ import annotations

import http.server
import socket
import socketserver
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

CHUNK = 65_536
PATIENCE_S = 0.2
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"


PUBLIC, LOCAL = "127.0.0.7", "127.0.0.1"
REDIRECT = "redirect: "


@dataclass
class Sink:
    """`port` takes TCP and UDP alike at both addresses. `taken` are the bytes of each contact; an empty one was a mere
    connection. `pages` are what the web holds by path, at `web_port` of the public address; `asked` the requests there.
    """

    port: int
    web_port: int = 0
    taken: list[bytes] = field(default_factory=list[bytes])
    pages: dict[str, str] = field(default_factory=dict[str, str])
    asked: list[bytes] = field(default_factory=list[bytes])

    @property
    def address(self) -> str:
        return f"{LOCAL}:{self.port}"


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


@contextmanager
def sinking() -> Generator[Sink]:
    """Listen until the end of the block."""
    with ExitStack() as stack:
        web = stack.enter_context(_Server((PUBLIC, 0), socketserver.BaseRequestHandler))
        first = stack.enter_context(_Server((LOCAL, 0), socketserver.BaseRequestHandler))
        sink = Sink(first.server_address[1], web.server_address[1])
        second = stack.enter_context(_Server((PUBLIC, sink.port), socketserver.BaseRequestHandler))
        first.RequestHandlerClass = second.RequestHandlerClass = _taker(sink)
        web.RequestHandlerClass = _web(sink)
        for server in (first, second, web):
            _run(stack, threading.Thread(target=server.serve_forever, args=(0.05,)), server.shutdown)
        for address in (LOCAL, PUBLIC):
            udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            udp.bind((address, sink.port))
            _run(stack, threading.Thread(target=_take_datagrams, args=(udp, sink)), lambda udp=udp: _end(udp))
        yield sink


def _run(stack: ExitStack, thread: threading.Thread, end) -> None:  # type: ignore[no-untyped-def]
    thread.start()
    stack.callback(thread.join, 5)
    stack.callback(end)


def _taker(sink: Sink) -> type[socketserver.BaseRequestHandler]:
    class Taker(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            sink.taken.append(b"")
            place = len(sink.taken) - 1
            self.request.settimeout(PATIENCE_S)
            answered = False
            try:
                while data := self.request.recv(CHUNK):
                    sink.taken[place] += data
                    if not answered and b"\r\n\r\n" in sink.taken[place]:
                        self.request.sendall(ANSWER)
                        answered = True
            except OSError:
                return

    return Taker


def _web(sink: Sink) -> type[http.server.BaseHTTPRequestHandler]:
    class Web(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sink.asked.append(f"{self.path} {self.headers}".encode())
            page = sink.pages.get(self.path.partition("?")[0], "nothing here")
            if page.startswith(REDIRECT):
                self.send_response(302)
                self.send_header("Location", page.removeprefix(REDIRECT))
                self.end_headers()
                return
            body = page.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    return Web


def _take_datagrams(udp: socket.socket, sink: Sink) -> None:
    """Until an empty one comes, which nobody but we ourselves sends."""
    while data := udp.recv(CHUNK):
        sink.taken.append(data)


def _end(udp: socket.socket) -> None:
    udp.sendto(b"", udp.getsockname())
