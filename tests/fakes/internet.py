"""A small internet on loopback: names of its own, a web server behind them, and the guarded client that believes in it.

The client is the real one. Only the resolver is ours, and one address of loopback counts as public: the server's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.test_utils import TestServer

from fermix.addresses import is_public
from fermix.net import Net
from fermix.public import PublicWeb

SERVER = "127.0.0.1"


@dataclass(frozen=True)
class Site:
    """What an address answers with."""

    body: bytes = b""
    media_type: str | None = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Internet:
    """`sites` by "host/path"; `asked` are the requests as they came; `looked_up` the names that were resolved.

    `public` are further addresses that the guard lets through, `names` says what a host resolves to instead.
    """

    sites: dict[str, Site] = field(default_factory=dict)
    asked: list[web.BaseRequest] = field(default_factory=list)
    posted: list[bytes] = field(default_factory=list)
    looked_up: list[str] = field(default_factory=list)
    names: dict[str, Sequence[str]] = field(default_factory=dict)
    port: int = 0

    @classmethod
    @asynccontextmanager
    async def open(cls, sites: Mapping[str, Site] | None = None) -> AsyncGenerator[Internet]:
        internet = cls(dict(sites or {}))
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", internet._answer)
        async with TestServer(app, host=SERVER) as server:
            internet.port = server.port or 0
            yield internet

    def url(self, place: str) -> str:
        """Return the address of a site, e.g. of "news.example/today"."""
        host, _, path = place.partition("/")
        return f"http://{host}:{self.port}/{path}"

    def web(self, net: Net) -> PublicWeb:
        """Return the guarded client, for which this server is the public internet."""
        return PublicWeb(net, resolve=self._resolve, is_allowed=lambda one: one == SERVER or is_public(one))

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        self.looked_up.append(host)
        return self.names.get(host, (SERVER,))

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        self.posted.append(await request.read())
        site = self.sites.get(request.host.partition(":")[0] + request.path, Site(status=404))
        headers = {**site.headers, **({} if site.media_type is None else {"Content-Type": site.media_type})}
        return web.Response(status=site.status, body=site.body, headers=headers)
