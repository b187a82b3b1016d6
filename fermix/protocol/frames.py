"""Lines on the Unix socket: one JSON object each, bounded. Used by the daemon and by the asyncio client."""

from __future__ import annotations

import json
from collections.abc import Mapping

from fermix.errors import LimitReached, Unusable
from fermix.protocol.methods import MAX_LINE_BYTES


class LineSplitter:
    """Cut a byte stream into lines. Raises: LimitReached when one grows over the bound."""

    def __init__(self, limit_bytes: int = MAX_LINE_BYTES) -> None:
        self._rest = bytearray()
        self._limit_bytes = limit_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines completed by `data`, without their ends; blank ones are left out."""
        self._rest += data
        if b"\n" not in data:
            self._check(len(self._rest))
            return []
        *lines, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        for line in (*lines, rest):
            self._check(len(line))
        return [line for line in lines if line.strip()]

    def _check(self, length: int) -> None:
        if length > self._limit_bytes:
            raise LimitReached(f"a line of more than {self._limit_bytes} bytes", limit="line_bytes")


def encode(message: Mapping[str, object]) -> bytes:
    """One line with its end. Half surrogate pairs, which UTF-8 cannot hold, become question marks."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"


def decode(line: bytes) -> dict[str, object]:
    """Read one line. Raises: Unusable when it is no JSON object."""
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Unusable("the line is not JSON") from error
    if not isinstance(value, dict):
        raise Unusable("the line is not a JSON object")
    return {str(key): item for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - JSON
