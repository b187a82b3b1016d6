"""Follow one HTTP answer to its end: bytes to events to an answer draft. Called by `remote.py` with status 200.

What must stay true: an answer counts only when the server said that it is complete; a cut stream, a page, or half an
event is a failure with a sentence, never an empty success.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from fermix.agent.model import Delta, JsonObject
from fermix.agent.providers.answer import Reader
from fermix.agent.providers.failures import BadAnswer
from fermix.agent.providers.fields import load_json
from fermix.agent.providers.provider import ErrorKind
from fermix.agent.providers.sse import EventReader, ServerEvent
from fermix.errors import LimitReached
from fermix.net import NetFailed, Response, Timeouts

MAX_BUFFERED_BYTES = 16 * 1024 * 1024
MOST_STREAM_BYTES = 128 * 1024 * 1024  # events are a hundred times longer than what they say
END_MARK = "[DONE]"
PREVIEW_CHARS = 200
_NO_NEWS = ("ping", "keepalive")  # types of events that only keep the connection open


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds of one call in seconds: `chunk_s` without any byte, `news_s` without a part of the answer (comments
    and pings hold the connection, not our attention), `total_s` for the whole stream.
    """

    chunk_s: float = 60.0
    news_s: float = 240.0
    total_s: float = 1_800.0

    @property
    def timeouts(self) -> Timeouts:
        return Timeouts(chunk_s=self.chunk_s, total_s=self.total_s)


async def follow(response: Response, reader: Reader, show: Callable[[Delta], None], patience: Patience) -> None:
    """Feed the reader until the answer is complete. Raises: BadAnswer, NetFailed."""
    content_type = response.headers.get("content-type", "")
    if "html" in content_type:
        raise _malformed("an HTML page instead of an answer; is the base_url right?")
    try:
        async with asyncio.timeout(patience.news_s) as bound:
            if "application/json" in content_type:
                await _read_whole(response, reader, show)
            else:
                await _Stream(reader, show, bound, patience).read(response)
    except TimeoutError as error:
        raise BadAnswer(ErrorKind.TIMEOUT, f"no part of an answer for {patience.news_s:.0f} s") from error
    except NetFailed:
        if not reader.draft.complete:
            raise
    if not reader.draft.complete:
        raise BadAnswer(ErrorKind.TRANSPORT, "the stream ended before the answer was complete")


async def _read_whole(response: Response, reader: Reader, show: Callable[[Delta], None]) -> None:
    """Read the answer of a server that does not stream."""
    body = await response.read(MAX_BUFFERED_BYTES)
    for delta in reader.read(_an_event(body.decode("utf-8", "replace"))):
        show(delta)
    reader.draft.ended = True


class _Stream:
    """Server-sent events into a reader, with a bound that moves on with every part of the answer."""

    def __init__(
        self, reader: Reader, show: Callable[[Delta], None], bound: asyncio.Timeout, patience: Patience
    ) -> None:
        self._reader = reader
        self._show = show
        self._bound = bound
        self._patience = patience
        self._events = EventReader()

    async def read(self, response: Response) -> None:
        left_bytes = MOST_STREAM_BYTES
        while not self._reader.draft.ended and (chunk := await response.next_chunk()):
            left_bytes -= len(chunk)
            if left_bytes < 0:
                raise _malformed("an answer that never ends")
            self._take_all(self._feed(chunk))
        if not self._reader.draft.complete:
            self._take_all(self._events.finish())

    def _feed(self, chunk: bytes) -> list[ServerEvent]:
        try:
            return self._events.feed(chunk)
        except LimitReached as error:
            raise _malformed(str(error)) from error

    def _take_all(self, events: list[ServerEvent]) -> None:
        news = False
        for event in events:
            if self._reader.draft.ended:
                break
            news = self._take(event) or news
        if news:
            self._bound.reschedule(asyncio.get_running_loop().time() + self._patience.news_s)

    def _take(self, event: ServerEvent) -> bool:
        """Return whether it was a part of the answer."""
        if event.data.strip() == END_MARK:
            self._reader.draft.ended = True
            return False
        parsed = _an_event(event.data)
        for delta in self._reader.read(parsed):
            self._show(delta)
        return parsed.get("type") not in _NO_NEWS


def _an_event(text: str) -> JsonObject:
    try:
        value = load_json(text)
    except ValueError as error:
        raise _malformed(f"something that is not JSON: {text[:PREVIEW_CHARS]!r}") from error
    if not isinstance(value, dict):
        raise _malformed(f"JSON that is not an object: {text[:PREVIEW_CHARS]!r}")
    return value


def _malformed(what: str) -> BadAnswer:
    return BadAnswer(ErrorKind.MALFORMED, f"the provider sent {what}", status=200)
