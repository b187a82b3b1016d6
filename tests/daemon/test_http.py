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
