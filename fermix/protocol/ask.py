"""The blocking client of the quick verbs, on `_socket` and json alone.

`fermix ask` must not pay for asyncio, dataclasses or even the `socket` module (it builds enums): see
docs/decisions. `client.py` is the same for asyncio.
"""

from __future__ import annotations

import _socket
import errno
import json
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence

MAX_LINE_BYTES = 4 * 1024 * 1024  # as protocol/methods.py, which this module must not import
PROTOCOL = 1


class DaemonNotRunning(Exception):
    """Nothing answers on the socket."""


class DaemonGone(Exception):
    """The daemon ended or closed the connection."""


class RequestFailed(Exception):
    """The daemon answered with an error; the text is for a person."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class LineTooLong(Exception):
    """What would be sent is longer than a line may be."""


class Connection:
    """One connection to the daemon. Notifications that arrive during a request are kept for `events`."""

    def __init__(self, path: str, *, client: str, timeout_s: float = 10.0) -> None:
        """Connect and say hello. Raises: DaemonNotRunning, RequestFailed on another protocol version."""
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        self._buffer = bytearray()
        self._waiting: list[dict[str, object]] = []
        self._number = 0
        self._socket.settimeout(timeout_s)
        try:
            self._connect(path)
            self.welcome = self.request("hello", {"protocol": PROTOCOL, "client": client})
        except BaseException:
            self._socket.close()
            raise

    def request(
        self, method: str, params: Mapping[str, object], *, descriptors: Sequence[int] = ()
    ) -> dict[str, object]:
        """Send one request and wait for its answer. Raises: RequestFailed, DaemonGone, LineTooLong, TimeoutError."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": dict(params)}, descriptors)
        while True:
            message = self._read()
            if message.get("id") == self._number and "method" not in message:
                return _result(message)
            self._waiting.append(message)

    def events(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield (name, params) of each notification. Raises: DaemonGone when the daemon ends, TimeoutError."""
        while True:
            message = self._waiting.pop(0) if self._waiting else self._read()
            params = message.get("params")
            if isinstance(params, dict):
                yield str(message.get("method")), params

    def wait_s(self, seconds: float | None) -> None:
        """Bound every further read; None waits for ever."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        self._socket.close()

    def _connect(self, path: str) -> None:
        try:
            self._socket.connect(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR, errno.EAGAIN):
                raise DaemonNotRunning(path) from error
            raise

    def _send(self, message: Mapping[str, object], descriptors: Sequence[int]) -> None:
        line = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise LineTooLong(f"the message has {len(line)} bytes, at most {MAX_LINE_BYTES} can be sent")
        try:
            sent = 0
            if descriptors:
                rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array("i", descriptors))]
                sent = self._socket.sendmsg([line], rights)
            self._socket.sendall(line[sent:])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise DaemonGone("the daemon closed the connection") from error

    def _read(self) -> dict[str, object]:
        while (end := self._buffer.find(b"\n")) < 0:
            try:
                data = self._socket.recv(262_144)
            except ConnectionResetError as error:
                raise DaemonGone("the daemon closed the connection") from error
            if not data:
                raise DaemonGone("the daemon ended")
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return _message(line)


def socket_path(environ: Mapping[str, str]) -> str:
    """Where the daemon of this home listens; the same rule as `home.Home.locate`, without its imports.

    Raises: RequestFailed when FERMIX_HOME is a relative path.
    """
    home = os.path.expanduser(environ.get("FERMIX_HOME", "").strip() or "~/.fermix")  # noqa: PTH111 - pathlib costs 10 ms
    if not os.path.isabs(home):  # noqa: PTH117
        raise RequestFailed(0, "FERMIX_HOME must be an absolute path")
    return os.path.join(home, "daemon.sock")  # noqa: PTH118


def _message(line: bytes) -> dict[str, object]:
    try:
        message: object = json.loads(line)
    except ValueError as error:
        raise DaemonGone("the daemon sent something that is no message") from error
    if not isinstance(message, dict):
        raise DaemonGone("the daemon sent something that is no message")
    return message  # pyright: ignore[reportUnknownVariableType] - JSON


def _result(message: Mapping[str, object]) -> dict[str, object]:
    error = message.get("error")
    if isinstance(error, dict):
        raise RequestFailed(int(error.get("code", 0)), str(error.get("message", "")))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] - JSON
    result = message.get("result")
    return result if isinstance(result, dict) else {}  # pyright: ignore[reportUnknownVariableType] - JSON
