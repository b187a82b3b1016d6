"""Server-sent events: bytes in, whole events out. Used by `remote.py` for every wire.

What must stay true: a chunk may end anywhere, inside a line end or a UTF-8 character included, and the events are
the same. Comments, `id:` and `retry:` are legal and mean nothing here; a last event may lack its blank line.
"""

from __future__ import annotations

from dataclasses import dataclass

from fermix.errors import LimitReached

MAX_EVENT_BYTES = 16 * 1024 * 1024  # a whole answer fits many times over; a server that never ends a line does not
BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event, e.g. `event: ping` and `data: {"type": "ping"}`. `name` is "" when the server gave none."""

    name: str
    data: str


class EventReader:
    """Cut a byte stream into events: `feed` each chunk, then `finish` once."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._first_line = True
        self._after_return = False
        self._name = ""
        self._data: list[str] = []
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Take the next bytes and return the events they complete. Raises: LimitReached."""
        if self._after_return and chunk:
            self._after_return = False
            chunk = chunk.removeprefix(b"\n")  # the other half of a line end that was already taken
        self._size_bytes += len(chunk)
        if self._size_bytes > MAX_EVENT_BYTES:
            raise LimitReached("a server-sent event never ends", limit="event_bytes")
        if b"\n" not in chunk and b"\r" not in chunk:
            self._line += chunk
            return []
        self._after_return = chunk.endswith(b"\r")
        first, *others = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        whole = bytes(self._line) + first
        self._line = bytearray(others.pop())
        return [event for line in (whole, *others) if (event := self._take(line)) is not None]

    def finish(self) -> list[ServerEvent]:
        """Return the event that only the end of the stream completes, if there is one."""
        rest, self._line = bytes(self._line), bytearray()
        return [event for line in (rest, b"") if (event := self._take(line)) is not None]

    def _take(self, raw: bytes) -> ServerEvent | None:
        line = raw.decode("utf-8", "replace")  # a whole line: only bytes that are wrong in themselves are replaced
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(BOM)
        if not line:
            return self._end_event()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        return None

    def _end_event(self) -> ServerEvent | None:
        event = ServerEvent(self._name, "\n".join(self._data)) if self._data else None
        self._name, self._data, self._size_bytes = "", [], len(self._line)
        return event
