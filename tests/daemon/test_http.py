from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from fermix.daemon.health import HealthBoard
from fermix.daemon.http import HttpServer
from fermix.errors import NeedsOperator
from fermix.events import EventQueue
from fermix.home import Home
from tests.daemon.house import FakeModels, running
from tests.fakes.clock import ManualClock
from tests.requirements import covers


@pytest.fixture
def models() -> FakeModels:
    return FakeModels()


@pytest.fixture
def health(tmp_path: Path, models: FakeModels) -> HealthBoard:
    health = HealthBoard(Home(tmp_path), ManualClock(), EventQueue(1))
    health.watch_models(models)
    return health


@pytest.fixture
async def server(health: HealthBoard) -> AsyncGenerator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, health)
    async with running(server.run):
        yield server


async def exchange(server: HttpServer, head: str) -> tuple[int, dict[str, Any]]:
    """Send a raw request; status and JSON body, {} when there is none."""
    host, port = server.address.rsplit(":", 1)
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    top, _, body = answer.partition(b"\r\n\r\n")
    is_json = b"application/json" in top
    return int(top.split()[1]), json.loads(body) if is_json else {}


async def get(server: HttpServer, path: str, host: str | None = None) -> tuple[int, dict[str, Any]]:
    return await exchange(server, f"GET {path} HTTP/1.1\nHost: {host or server.address}\nConnection: close")


@covers("daemon.aiohttp.health")
async def test_live_ready_and_its_alias_answer_as_json(server: HttpServer, health: HealthBoard) -> None:
    assert await get(server, "/health/live") == (200, {"status": "ok", **health.identity()})
    ready = await get(server, "/health/ready")
    assert ready == (200, health.report())
    assert await get(server, "/health") == ready


async def test_ready_is_503_while_nobody_can_answer_and_live_stays_200(server: HttpServer, models: FakeModels) -> None:
    models.current = None
    status, body = await get(server, "/health/ready")

    assert (status, body["status"]) == (503, "setup_required")
    assert (await get(server, "/health/live"))[0] == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("127.0.0.1:1", 200),
        ("localhost:4030", 200),
        ("[::1]:4030", 200),
        ("[::1]", 200),
        ("evil.example", 421),
        ("evil.example:4030", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:4030", 421),
        ("[::2]", 421),
        ("user@127.0.0.1", 421),
    ],
)
async def test_only_our_own_names_are_answered(server: HttpServer, host: str, status: int) -> None:
    """A page of a stranger that points its name at loopback gets nothing (DNS rebinding)."""
    answer = await get(server, "/health/live", host)

    assert answer[0] == status
    assert status == 200 or answer[1] == {"error": "unknown host"}


async def test_a_request_without_a_host_is_refused_without_asking_the_resolver(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda _name="": pytest.fail("the resolver was asked on the loop"))

    assert (await exchange(server, "GET /health/live HTTP/1.0"))[0] == 421


@pytest.mark.parametrize(
    ("request_line", "status"),
    [("GET /", 404), ("GET /health/live/x", 404), ("POST /health/live", 405), ("GET /../etc/passwd", 404)],
)
async def test_nothing_else_is_served(server: HttpServer, request_line: str, status: int) -> None:
    head = f"{request_line} HTTP/1.1\nHost: {server.address}\nContent-Length: 0\nConnection: close"

    assert (await exchange(server, head))[0] == status


async def test_a_port_that_is_taken_needs_the_owner(health: HealthBoard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = HttpServer("127.0.0.1", port, health)
        with pytest.raises(NeedsOperator, match=rf"cannot listen on 127.0.0.1:{port}: .*\[fermix_web\] port"):
            await server.run(lambda: pytest.fail("it said that it serves"))


async def test_the_port_is_free_again_afterwards(health: HealthBoard) -> None:
    server = HttpServer("127.0.0.1", 0, health)
    async with running(server.run):
        port = int(server.address.rsplit(":", 1)[1])
        assert port > 0
    async with running(HttpServer("127.0.0.1", port, health).run):
        pass


def routes(server: HttpServer) -> set[tuple[str, str]]:
    app = server.application()
    return {(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None}


OPEN = {(method, path) for method in ("GET", "HEAD") for path in ("/health", "/health/live", "/health/ready")}


def test_liveness_and_readiness_are_all_that_is_open(health: HealthBoard) -> None:
    """R-1: a route that stands here without a token must be added to this list by somebody who has thought about it."""
    assert routes(HttpServer("127.0.0.1", 0, health)) == OPEN


@pytest.mark.parametrize(
    "header",
    ["X-Forwarded-For: 127.0.0.1", "X-Forwarded-Host: evil.example", "Forwarded: for=127.0.0.1;host=localhost",
     "X-Real-IP: 127.0.0.1", "X-HTTP-Method-Override: POST", "X-Original-URL: /daemon/stop", "Authorization: Bearer x"],
)  # fmt: skip
async def test_what_a_proxy_says_opens_nothing_and_closes_nothing(server: HttpServer, header: str) -> None:
    """R-1: where a request comes from proves nothing, whoever states it."""
    for path, host, status in (("/health/live", server.address, 200), ("/", server.address, 404),
                               ("/health/live", "evil.example", 421)):  # fmt: skip
        head = f"GET {path} HTTP/1.1\nHost: {host}\n{header}\nConnection: close"
        assert (await exchange(server, head))[0] == status


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
async def test_a_page_in_a_browser_changes_nothing(server: HttpServer, method: str, origin: str) -> None:
    """R-2: a plain-text request needs no preflight; there is nothing that it could reach."""
    for path in ("/health", "/health/live", "/health/ready"):
        head = (f"{method} {path} HTTP/1.1\nHost: {server.address}\nOrigin: {origin}\nContent-Type: text/plain\n"
                "Content-Length: 0\nConnection: close")  # fmt: skip
        assert (await exchange(server, head))[0] == 405


@pytest.mark.parametrize("origin", ["", "Origin: https://evil.example\n"])
async def test_no_request_becomes_another_protocol(server: HttpServer, origin: str) -> None:
    """R-2: an upgrade would be a way around everything that is checked for a request."""
    for protocol in ("websocket", "h2c"):
        head = (f"GET /health/live HTTP/1.1\nHost: {server.address}\n{origin}Upgrade: {protocol}\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Version: 13\n"
                "Connection: Upgrade, close")  # fmt: skip
        assert (await exchange(server, head))[0] != 101


async def test_nobody_elsewhere_may_read_what_is_open(server: HttpServer) -> None:
    """R-2: no page is told that it may read our answers."""
    host, port = server.address.rsplit(":", 1)
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /health HTTP/1.1\r\nHost: {server.address}\r\nOrigin: https://evil.example\r\n"
                     "Connection: close\r\n\r\n".encode())  # fmt: skip
        head = (await reader.read()).partition(b"\r\n\r\n")[0].lower()
        writer.close()
        await writer.wait_closed()

    assert b"access-control" not in head
    assert b"set-cookie" not in head
