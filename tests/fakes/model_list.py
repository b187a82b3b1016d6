"""A provider's list of models on loopback, in a thread, for the blocking probe. Strict about the key's header."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

GOOD_KEY = "sk-good-0123456789abcdef"
MODELS = json.dumps({"data": [{"id": "gpt-5.5"}, {"id": "gpt-5.4-mini"}, {"id": "house-special"}]}).encode()


@dataclass(slots=True)
class ModelList:
    """What it answers to a good key, and what it was asked. `keyless` answers everybody."""

    base_url: str = ""
    status: int = 200
    body: bytes = MODELS
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    refusal_status: int = 401
    refusal: bytes = b'{"error": {"message": "bad key"}}'
    keyless: bool = False
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list[tuple[str, Mapping[str, str]]])


@contextmanager
def model_list() -> Generator[ModelList]:
    """Serve until the block is left."""
    said = ModelList()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            said.asked.append((self.path, headers))
            key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
            good = said.keyless or key == GOOD_KEY
            body = said.body if good else said.refusal
            self.send_response(said.status if good else said.refusal_status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    said.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield said
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()
