"""The daemon's one outbound HTTP client. Providers and tools call it; what others chose the address of goes through
`public.py`, which judges it first.

What must stay true: one connection pool a process for the addresses of the configuration, and none for the others; no
ambient proxy and no redirect is followed, so a key goes to the host it was meant for and nowhere else; no message
holds more of an address than its host; every wait is bounded.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Literal, Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from fermix import __version__
from fermix.errors import NeedsOperator, Refused, Unavailable
from fermix.lookup import LookUps
from fermix.tls import client_context

USER_AGENT = f"fermix/{__version__}"
IDLE_CONNECTION_S = 15.0  # servers drop idle connections silently; an older one is not worth the risk
MAX_CONNECTIONS = 1_024  # a thousand conversations at once wait for their answers, not for each other
DRAIN_S = 0.2  # how long a finished answer may take to end its body, so that the connection can be used again

LOOK_UP_S = 5.0  # to find the addresses of a name
UNKNOWN_NAME = "the name cannot be resolved"

NetFault = Literal["timeout", "closed", "unreachable", "tls"]


class NetFailed(Unavailable):
    """No answer, or half of one. `fault` says how; the text names the host only. `closed_address` is a place on this
    machine where nothing listens, e.g. "127.0.0.1:8080", "" in all other cases.
    """

    def __init__(self, fault: NetFault, host: str, detail: str, *, closed_address: str = "") -> None:
        super().__init__(f"{host}: {detail}")
        self.fault: NetFault = fault
        self.closed_address = closed_address


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Bounds of one call in seconds: to connect, between two pieces of the answer, and for the whole."""

    connect_s: float = 10.0
    chunk_s: float = 60.0
    total_s: float = 240.0


class Response:
    """An answer whose headers are here and whose body is still on its way. Header names are lower case."""

    def __init__(self, raw: aiohttp.ClientResponse, host: str) -> None:
        self._raw = raw
        self._host = host
        self.status = raw.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in raw.headers.items()}

    async def next_chunk(self) -> bytes:
        """Return more of the body as it arrives, b"" at its end. Raises: NetFailed."""
        try:
            return await self._raw.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error, self._host) from error

    async def read(self, limit_bytes: int) -> bytes:
        """Return at most `limit_bytes` of the body; what lies beyond is not read. Raises: NetFailed."""
        body = bytearray()
        while len(body) < limit_bytes and (chunk := await self.next_chunk()):
            body += chunk
        return bytes(body[:limit_bytes])


class Net:
    """The client. Its session is made by the first call, so that an idle daemon pays nothing for it."""

    def __init__(self, *, loopback_only: bool) -> None:
        self._loopback_only = loopback_only
        self._session: aiohttp.ClientSession | None = None
        self._trust: ssl.SSLContext | None = None
        self._trust_wanted = asyncio.Lock()
        self._look_ups = LookUps()

    @classmethod
    @asynccontextmanager
    async def open(cls, *, loopback_only: bool = False) -> AsyncGenerator[Self]:
        """Open the client; `loopback_only` refuses every other address, as tests demand."""
        net = cls(loopback_only=loopback_only)
        try:
            yield net
        finally:
            if net._session is not None:
                await net._session.close()

    @asynccontextmanager
    async def post_stream(
        self, url: str, *, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> AsyncGenerator[Response]:
        """Send `body` and yield the answer, whatever its status; leaving early closes the connection.

        Raises: NetFailed, Refused.
        """
        host = self._admit(url)
        raw = await self._post(url, host, {"User-Agent": USER_AGENT, **headers}, body, timeouts)
        try:
            yield Response(raw, host)
            if await _ended(raw):
                raw.release()
        finally:
            raw.close()  # does nothing to a connection that went back to the pool

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        """Return every address of a name or number, in the order to try them. Raises: NetFailed, Refused."""
        self._admit_host(host)
        try:
            return await self._look_ups.find(host, port, LOOK_UP_S)
        except TimeoutError as error:
            raise NetFailed("timeout", host, "the name was not found in time") from error
        except (OSError, ValueError) as error:
            raise NetFailed("unreachable", host, UNKNOWN_NAME) from error

    @asynccontextmanager
    async def get_pinned(
        self, url: str, addresses: Sequence[str], *, headers: Mapping[str, str], timeouts: Timeouts
    ) -> AsyncGenerator[Response]:
        """Ask one of `addresses`, whatever the name resolves to by now; Host, SNI and certificate are of the name.

        The body comes as it was sent, compressed or not; the connection serves no other call. Raises: NetFailed,
        Refused.
        """
        host = urlsplit(url).hostname or ""
        for address in addresses:
            self._admit_host(address)
        trust = await self._trusted(host) if url.startswith("https:") else True
        connector = aiohttp.TCPConnector(
            resolver=_Pinned(addresses), use_dns_cache=False, force_close=True, ssl=trust, limit=1
        )
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            timeout=_limits(timeouts),
        ) as session:
            try:
                raw = await session.get(url, headers={"User-Agent": USER_AGENT, **headers}, allow_redirects=False)
            except (aiohttp.ClientError, OSError) as error:
                raise _failure(error, host) from error
            try:
                yield Response(raw, host)
            finally:
                raw.close()

    def _admit(self, url: str) -> str:
        host = urlsplit(url).hostname or ""
        self._admit_host(host)
        return host

    def _admit_host(self, host: str) -> None:
        if self._loopback_only and not _is_loopback(host):
            raise Refused(f"{host}: this process may reach loopback addresses only")

    async def _post(
        self, url: str, host: str, headers: Mapping[str, str], body: bytes, timeouts: Timeouts
    ) -> aiohttp.ClientResponse:
        """Post, and once more when a pooled connection turns out to be dead; a time-out is never repeated."""
        limits = _limits(timeouts)
        connection = SimpleNamespace(pooled=False)
        session = self._open_session()
        trust = await self._trusted(host) if url.startswith("https:") else True

        async def attempt() -> aiohttp.ClientResponse:
            return await session.post(
                url,
                data=body,
                headers=headers,
                timeout=limits,
                allow_redirects=False,
                ssl=trust,
                trace_request_ctx=connection,
            )

        try:
            try:
                return await attempt()
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                if not connection.pooled:
                    raise
                return await attempt()
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(error, host) from error

    async def _trusted(self, host: str) -> ssl.SSLContext:
        """Load the authorities with the first call that needs them, beside the loop: it takes a tenth of a second."""
        async with self._trust_wanted:
            if self._trust is None:
                try:
                    self._trust = await asyncio.to_thread(client_context)  # once a process; `Workers` stands beside us
                except NeedsOperator as error:
                    raise NetFailed("tls", host, str(error)) from error
            return self._trust

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            trace = aiohttp.TraceConfig()
            trace.on_connection_reuseconn.append(_note_pooled)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, keepalive_timeout=IDLE_CONNECTION_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[trace],
                trust_env=False,
            )
        return self._session


class _Pinned(AbstractResolver):
    """Gives the addresses that were vetted, for whatever name."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host=address, port=port, proto=0, flags=socket.AI_NUMERICHOST,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
            )
            for address in self._addresses
        ]  # fmt: skip

    async def close(self) -> None:
        """Nothing is held."""


def _limits(timeouts: Timeouts) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=timeouts.total_s,
        connect=timeouts.connect_s,
        sock_connect=timeouts.connect_s,
        sock_read=timeouts.chunk_s,
    )


async def _note_pooled(
    session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceConnectionReuseconnParams
) -> None:
    context.trace_request_ctx.pooled = True


async def _ended(raw: aiohttp.ClientResponse) -> bool:
    try:
        async with asyncio.timeout(DRAIN_S):
            return not await raw.content.read(1)
    except (aiohttp.ClientError, OSError):
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _failure(error: aiohttp.ClientError | OSError, host: str) -> NetFailed:
    """Sort what aiohttp raises; its texts are not used, since some hold the whole address."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return NetFailed("timeout", host, "no connection in time")
        case TimeoutError():
            return NetFailed("timeout", host, "no answer in time")
        case aiohttp.ClientConnectorDNSError():
            return NetFailed("unreachable", host, UNKNOWN_NAME)
        case aiohttp.ClientSSLError() | aiohttp.ClientConnectorCertificateError():
            return NetFailed("tls", host, "no trusted TLS connection")
        case aiohttp.ClientConnectorError():
            address = f"{host}:{error.port}" if _is_loopback(host) else ""
            return NetFailed("unreachable", host, error.strerror or "cannot connect", closed_address=address)
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return NetFailed("unreachable", host, "not an address that can be called")
        case _:
            return NetFailed("closed", host, "the connection was closed before the answer was complete")
