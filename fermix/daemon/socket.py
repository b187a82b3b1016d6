"""The daemon's Unix socket: who connects, what they ask, what they are told.

Wire: protocol/methods.py. The socket is 0600 in a 0700 home and the peer's user id is checked. Attachments come
as descriptors, which asyncio's transports cannot receive, so the sockets are served with plain non-blocking
calls. A stale file is recognised by a probe and replaced; a live one is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fermix.daemon.audience import Audience
from fermix.errors import FermixError, LimitReached, NeedsOperator, Unusable
from fermix.home import PRIVATE_FILE, check_socket_path
from fermix.native.peer import Peer, peer_of
from fermix.protocol.frames import LineSplitter, decode, encode
from fermix.protocol.methods import PROTOCOL, Code

log = logging.getLogger(__name__)

READ_BYTES = 256 * 1024
MAX_DESCRIPTORS = 16
SOFT_PENDING_BYTES = 256 * 1024  # past that a client misses deltas
HARD_PENDING_BYTES = 16 * 1024 * 1024  # past that it is dropped
PROBE_S = 0.5
HELLO_S = 10.0
BACKLOG = 1_024  # clients that may call in one moment; one more hears that no daemon runs


class RequestError(FermixError):
    """An answer with an error; the text is for a person."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message, user_text=message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Call:
    """One request as the methods see it. `descriptors` are open and the method's to close."""

    client: Client
    method: str
    params: Mapping[str, object]
    descriptors: deque[int]


class Methods(Protocol):
    """What the daemon does for its clients."""

    async def answer(self, call: Call) -> Mapping[str, object]:
        """Raises: RequestError, FermixError with a user text."""
        ...


class Client:
    """One connection."""

    def __init__(self, connection: socket.socket, peer: Peer) -> None:
        self.id = uuid.uuid4().hex
        self.peer = peer
        self.name = ""
        self.sessions: frozenset[str] | None = frozenset()
        self.services = False
        self._socket = connection
        self._fresh: list[bytes] = []
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0
        self._writable = asyncio.Event()
        self._dropped = 0
        self.lost = False

    def hears(self, session: str | None) -> bool:
        if session is None:
            return self.services
        return self.sessions is None or session in self.sessions

    def notify(self, event: str, params: Mapping[str, object], *, droppable: bool) -> None:
        if droppable and self._pending_bytes > SOFT_PENDING_BYTES:
            self._dropped += 1
            return
        if self._dropped and self._pending_bytes <= SOFT_PENDING_BYTES:
            dropped, self._dropped = self._dropped, 0
            self.notify("events.dropped", {"count": dropped}, droppable=False)
        self.send({"jsonrpc": "2.0", "method": event, "params": dict(params)})

    def send(self, message: Mapping[str, object]) -> None:
        """Take one line; never blocks. What one round of the loop has to say leaves together."""
        if self.lost:
            return
        if not self._fresh:
            asyncio.get_running_loop().call_soon(self._flush)
        line = encode(message)
        self._fresh.append(line)
        self._pending_bytes += len(line)
        if self._pending_bytes > HARD_PENDING_BYTES:
            log.warning("client %s stopped reading and is dropped", self.name or self.id)
            self.close()

    async def write_pending(self) -> None:
        """Send what could not be sent at once, as the client reads; runs as long as the connection."""
        loop = asyncio.get_running_loop()
        while not self.lost:
            self._writable.clear()
            while self._pending:
                line = self._pending[0]
                await loop.sock_sendall(self._socket, line)
                self._pending.popleft()
                self._pending_bytes -= len(line)
            await self._writable.wait()

    def close(self) -> None:
        self._flush()
        self.lost = True
        self._writable.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _flush(self) -> None:
        """Write what the kernel takes now and keep the rest."""
        lines = b"".join(self._fresh)
        self._fresh.clear()
        if lines and not self._pending:
            lines = self._write(lines)
        if lines and not self.lost:
            self._pending.append(lines)
            self._writable.set()

    def _write(self, lines: bytes) -> bytes:
        try:
            taken = self._socket.send(lines)
        except BlockingIOError:
            return lines
        except OSError:
            self.close()
            return b""
        self._pending_bytes -= taken
        return lines[taken:]


class SocketServer:
    """The service behind daemon.sock."""

    name = "socket"

    def __init__(self, path: Path, methods: Methods, audience: Audience) -> None:
        self._path = path
        self._methods = methods
        self._audience = audience

    async def run(self, started: Callable[[], None]) -> None:
        with _listening(self._path) as listener:
            async with asyncio.TaskGroup() as clients:
                started()
                while True:
                    connection = await _accept(listener)
                    client = clients.create_task(self._serve(connection), name="client")
                    client.add_done_callback(lambda _, connection=connection: connection.close())

    async def _serve(self, connection: socket.socket) -> None:
        """Serve one client to its end; nothing it does reaches further."""
        try:
            with contextlib.closing(peer_of(connection)) as peer:
                if peer.uid != os.geteuid():
                    log.warning("a client of user id %s was refused", peer.uid)
                    return
                await self._talk(Client(connection, peer), connection)
        except Exception:
            log.exception("a client broke")

    async def _talk(self, client: Client, connection: socket.socket) -> None:
        reader = _Reader(connection)
        try:
            async with asyncio.TaskGroup() as group:
                writing = group.create_task(client.write_pending(), name="client writes")
                await self._read(client, reader)
                client.close()
                writing.cancel()
        except* (OSError, LimitReached) as errors:
            log.debug("client %s left: %s", client.name or client.id, errors.exceptions[0])
        finally:
            client.close()
            reader.close()
            self._audience.remove(client)

    async def _read(self, client: Client, reader: _Reader) -> None:
        async with asyncio.timeout(HELLO_S) as patience:
            async for line in reader.lines():
                await self._take(client, line, reader.descriptors)
                if client.name:
                    patience.reschedule(None)

    async def _take(self, client: Client, line: bytes, descriptors: deque[int]) -> None:
        number: object = None
        try:
            request = decode(line)
            number = request.get("id")
            result = await self._answer(client, request, descriptors)
            client.send({"jsonrpc": "2.0", "id": number, "result": dict(result)})
        except RequestError as error:
            client.send(_error(number, error.code, str(error)))
        except Unusable as error:
            client.send(_error(number, Code.PARSE_ERROR if number is None else Code.REFUSED, str(error)))
        except FermixError as error:
            client.send(_error(number, Code.REFUSED, error.user_text or "the daemon refused"))
        except Exception:
            log.exception("a request broke")
            client.send(_error(number, Code.INTERNAL, "the daemon failed at this; its log has the details"))

    def _answer(
        self, client: Client, request: Mapping[str, object], descriptors: deque[int]
    ) -> Awaitable[Mapping[str, object]]:
        method, params = request.get("method"), request.get("params", {})
        if request.get("jsonrpc") != "2.0" or not isinstance(method, str) or not isinstance(params, dict):
            raise RequestError(Code.INVALID_REQUEST, "not a JSON-RPC 2.0 request")
        if not client.name and method != "hello":
            raise RequestError(Code.HELLO_REQUIRED, "say hello first")
        named: dict[str, object] = {str(key): value for key, value in params.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - JSON
        return self._methods.answer(Call(client, method, named, descriptors))


class _Reader:
    """Reads lines and the descriptors that came with them."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lines = LineSplitter()
        self.descriptors: deque[int] = deque()

    async def lines(self) -> AsyncGenerator[bytes]:
        while data := await self._receive():
            for line in self._lines.feed(data):
                yield line

    def close(self) -> None:
        while self.descriptors:
            os.close(self.descriptors.popleft())

    async def _receive(self) -> bytes:
        while True:
            try:
                data, descriptors, _, _ = socket.recv_fds(
                    self._socket, READ_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                await _readable(self._socket)
                continue
            self.descriptors.extend(descriptors)
            if len(self.descriptors) > MAX_DESCRIPTORS:
                raise LimitReached("too many descriptors", limit="descriptors")
            return data


async def _accept(listener: socket.socket) -> socket.socket:
    """Wait for a client. A cancellation never loses one that is accepted already, which `loop.sock_accept` may."""
    while True:
        await _readable(listener)
        with contextlib.suppress(BlockingIOError):  # it has left again
            connection, _ = listener.accept()
            connection.setblocking(False)
            return connection


async def _readable(connection: socket.socket) -> None:
    loop, number = asyncio.get_running_loop(), connection.fileno()
    ready = asyncio.Event()
    loop.add_reader(number, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(number)


@contextmanager
def _listening(path: Path) -> Generator[socket.socket]:
    """Bind the socket, 0600 from the first moment; removed on the way out."""
    check_socket_path(path)
    _replace_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    with listener:
        old = os.umask(0o777 & ~PRIVATE_FILE)
        try:
            listener.bind(str(path))
        finally:
            os.umask(old)
        listener.listen(BACKLOG)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _replace_stale(path: Path) -> None:
    """Raises: NeedsOperator when a live daemon answers there, or when what is there cannot be removed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_S)
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            return
        except (ConnectionRefusedError, TimeoutError):
            _remove(path)
            return
    raise NeedsOperator(f"another daemon answers at {path}", advice="stop it with `fermix stop`")


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        problem = f"something else is at {path}: {error.strerror}"
        raise NeedsOperator(problem, advice="move it away and start again") from error


def _error(number: object, code: Code, message: str) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": int(code), "message": message}}


def check_protocol(stated: object) -> None:
    """Raises: RequestError with both numbers when a client speaks another version."""
    if stated != PROTOCOL:
        problem = f"this daemon speaks protocol {PROTOCOL}, the client {stated}; restart the older of the two"
        raise RequestError(Code.PROTOCOL_MISMATCH, problem)
