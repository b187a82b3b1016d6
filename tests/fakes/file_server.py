"""A file server on loopback that breaks off, ignores ranges or sends other bytes, as told."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar


class FileServer:
    """Serves one content under every path. `breaks` holds, request by request, after how many bytes to hang up."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.ranges = True
        self.status = 200
        self.shift = 0
        self.breaks: list[int] = []
        self.asked: list[str | None] = []
        self.base_url = ""

    @contextmanager
    def serve(self, tls: ssl.SSLContext | None = None) -> Generator[FileServer]:
        server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"files": self}))
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        self.base_url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join(5)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: clients that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    files: ClassVar[FileServer]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        files = self.files
        wanted = self.headers.get("Range")
        files.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and files.ranges else 0
        body = files.content[start:]
        self.send_response(self._status(start))
        self.send_header("Content-Length", str(len(body)))
        if start:
            first = start + files.shift
            self.send_header("Content-Range", f"bytes {first}-{len(files.content) - 1}/{len(files.content)}")
        self.end_headers()
        if files.breaks:
            body = body[: files.breaks.pop(0)]
            self.close_connection = True
        self.wfile.write(body)

    def _status(self, start: int) -> int:
        if self.files.status != 200:
            return self.files.status
        if start >= len(self.files.content):
            return 416
        return 206 if start else 200

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the test reads `asked`."""
