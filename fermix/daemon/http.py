"""The HTTP server on loopback: health now, webhooks and the home page later.

Liveness and readiness are the only open routes. `Host` must be one of ours, which stops DNS rebinding.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from fermix.daemon.health import HealthBoard
from fermix.errors import NeedsOperator

log = logging.getLogger(__name__)

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
SHUTDOWN_S = 2.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpServer:
    """The service behind the port. `address` is "host:port" once it serves; port 0 takes any free one."""

    name = "http"

    def __init__(self, bind: str, port: int, health: HealthBoard) -> None:
        self._bind = bind
        self._port = port
        self._health = health
        self.address = f"{bind}:{port}"

    async def run(self, started: Callable[[], None]) -> None:
        """Raises: NeedsOperator when the port is taken."""
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=SHUTDOWN_S)
        await runner.setup()
        try:
            await self._listen(runner)
            started()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    def application(self) -> web.Application:
        """Return all routes, behind all checks."""
        app = web.Application(middlewares=[self._check_host])
        app.router.add_get("/health/live", self._live)
        app.router.add_get("/health/ready", self._ready)
        app.router.add_get("/health", self._ready)
        return app

    async def _listen(self, runner: web.AppRunner) -> None:
        try:
            await web.TCPSite(runner, self._bind, self._port).start()
        except OSError as error:
            raise NeedsOperator(
                f"cannot listen on {self._bind}:{self._port}: {error.strerror}",
                advice="free the port or set [fermix_web] port in config.toml, then restart the daemon",
            ) from error
        host, port = runner.addresses[0][:2]
        self.address = f"{host}:{port}"

    @web.middleware
    async def _check_host(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get(
            "Host", ""
        )  # not `request.host`: without the header it asks the resolver, on the loop
        name = host if host.endswith("]") else host.rsplit(":", 1)[0]
        if name not in LOOPBACK_NAMES and name != self._bind:
            return web.json_response({"error": "unknown host"}, status=421)
        return await handler(request)

    async def _live(self, _request: web.Request) -> web.Response:
        return web.json_response({"status": "ok", **self._health.identity()})

    async def _ready(self, _request: web.Request) -> web.Response:
        report = self._health.report()
        return web.json_response(report, status=200 if report["status"] == "ready" else 503)
