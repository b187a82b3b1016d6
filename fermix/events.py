"""What happened, for whoever watches: traces, the socket, health. Nothing waits for an event or decides by one.

`Events.emit` is synchronous, never blocks and never raises. A subscriber that falls behind loses its
oldest events and its `dropped` counter rises.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fermix.clock import Clock
from fermix.message import ConversationKey

log = logging.getLogger(__name__)

PREVIEW_CHARS = 2_000  # bodies in traces are previews while content capture is off: reference 4, section 6.3


def preview(text: str, *, limit: int = PREVIEW_CHARS) -> str:
    """Cut a body for an event; says how much is missing."""
    return text if len(text) <= limit else f"{text[:limit]}… (+{len(text) - limit} characters)"


@dataclass(frozen=True, slots=True)
class ServiceState:
    """A service came up, went down or waits for the operator."""

    service: str
    state: Literal["up", "down", "parked"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message was authorized. Denied ones leave a log line only."""

    key: ConversationKey
    message_id: str
    trust: str
    text: str


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """A lane's queue behind its running turn; `waiting` are message ids in order."""

    key: ConversationKey
    running: str | None
    waiting: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn left the queue."""

    key: ConversationKey
    turn_id: str
    message_id: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn is over. `outcome` is the kind; `error` is for the trace, not for the sender."""

    key: ConversationKey
    turn_id: str
    message_id: str
    outcome: Literal["completed", "cancelled", "failed"]
    duration_s: float
    steps: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class HistoryTrimmed:
    """The oldest `dropped` messages were left out of a turn's request, because they did not fit the window."""

    key: ConversationKey
    turn_id: str
    dropped: int
    kept: int


@dataclass(frozen=True, slots=True)
class ModelCalled:
    """One request to a provider ended. `cached_tokens` is None when the provider does not report it."""

    turn_id: str
    provider: str
    model: str
    status: Literal["ok", "error", "cancelled"]
    duration_s: float
    input_tokens: int
    output_tokens: int
    cached_tokens: int | None = None
    first_token_s: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class ProviderChanged:
    """A call moved to the next route of the chain."""

    turn_id: str
    source: str
    target: str
    reason: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool call begins. `arguments` is a preview of their JSON; `exposed` says whether words from outside stand
    before the model by now, read by an earlier turn or by this one.
    """

    key: ConversationKey
    turn_id: str
    call_id: str
    name: str
    arguments: str
    exposed: Literal["no", "earlier", "now"] = "no"


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A tool call ended with exactly one result; also when it never ran. `outside`: it holds words of others."""

    key: ConversationKey
    turn_id: str
    call_id: str
    name: str
    ok: bool
    duration_s: float
    result: str
    outside: bool = False


@dataclass(frozen=True, slots=True)
class MessageDelivered:
    """A reply reached its platform, or did not."""

    key: ConversationKey
    message_id: str
    ok: bool
    text: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class MessageSettled:
    """The last word on a message that was accepted. "handled": no turn ran (a command, nothing readable).
    `error` is the sentence the sender read, "" unless failed.
    """

    key: ConversationKey
    message_id: str
    outcome: Literal["completed", "cancelled", "failed", "handled"]
    duration_s: float
    error: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ConversationChanged:
    """History was cleared or replaced; screens load it again."""

    key: ConversationKey


CompactionTrigger = Literal["before", "after", "refused", "asked"]


@dataclass(frozen=True, slots=True)
class ConversationCompacted:
    """Older messages were summed up, or `error` says why not. `covered` counts them; tokens are the history's by
    estimate, and `measured` says that a provider's own count set it off.
    """

    key: ConversationKey
    trigger: CompactionTrigger
    covered: int = 0
    before_tokens: int = 0
    after_tokens: int = 0
    rounds: int = 0
    measured: bool = False
    error: str = ""


DownloadState = Literal["running", "verifying", "done", "failed"]


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """A pinned download moves; `total_bytes` is pinned and known."""

    name: str
    done_bytes: int
    total_bytes: int
    state: DownloadState
    error: str = ""


Event = (
    ServiceState
    | MessageReceived
    | QueueChanged
    | TurnStarted
    | TurnEnded
    | HistoryTrimmed
    | ModelCalled
    | ProviderChanged
    | ToolStarted
    | ToolCalled
    | MessageDelivered
    | MessageSettled
    | ConversationChanged
    | ConversationCompacted
    | DownloadProgress
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event with the time it was emitted (UTC) and its place in the stream."""

    at: datetime
    number: int
    event: Event


class EventQueue:
    """A bounded view of the stream for one subscriber; the oldest goes when it is full."""

    def __init__(self, limit: int) -> None:
        self._items: deque[Recorded] = deque(maxlen=limit)
        self._arrived = asyncio.Event()
        self.dropped = 0

    def put(self, item: Recorded) -> None:
        if len(self._items) == self._items.maxlen:
            self.dropped += 1
        self._items.append(item)
        self._arrived.set()

    async def get(self) -> Recorded:
        while not self._items:
            self._arrived.clear()
            await self._arrived.wait()
        return self._items.popleft()

    def drain(self) -> list[Recorded]:
        """Take all that is here, without waiting."""
        items = list(self._items)
        self._items.clear()
        return items


class Events:
    """The bus. One per daemon; used from the loop's thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: list[EventQueue] = []
        self._number = 0

    def emit(self, event: Event) -> None:
        self._number += 1
        recorded = Recorded(self._clock.now(), self._number, event)
        for queue in self._queues:
            queue.put(recorded)

    @contextmanager
    def subscribe(self, limit: int) -> Generator[EventQueue]:
        queue = EventQueue(limit)
        self._queues.append(queue)
        try:
            yield queue
        finally:
            self._queues.remove(queue)
