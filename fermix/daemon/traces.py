"""What happened, on disk: one JSON line an event, in `traces/<UTC date>/<type>.jsonl`.

A service that listens to the event bus. Best effort: a line that cannot be written changes no reply, and a disk
that refuses is said once in the log. Every string passes the redactor.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import math
import os
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias, cast

from fermix import events as happened
from fermix.clock import Clock
from fermix.config.secrets import redact
from fermix.events import Event, EventQueue, Events, Recorded, preview
from fermix.home import AGENT_ID, PRIVATE_DIR, PRIVATE_FILE
from fermix.message import ConversationKey
from fermix.workers import Workers

log = logging.getLogger(__name__)

Kind: TypeAlias = Literal["llm_call", "tool_exec", "agent_event", "channel_msg", "error"]
Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"

GATHER_S = 0.2  # a turn's events come within moments of each other; one visit to the disk does for them
QUEUE_EVENTS = 5_000  # a burst of this many waits for the disk; past it the oldest are lost and counted


class TraceWriter:
    """The one writer of traces. `content` keeps whole bodies; otherwise they are cut to previews."""

    name = "traces"

    def __init__(self, events: Events, clock: Clock, folder: Path, workers: Workers, *, content: bool) -> None:
        self._events = events
        self._clock = clock
        self._folder = folder
        self._workers = workers
        self._content = content
        self._failing = False
        self._dropped = 0
        self._waiting: deque[Recorded] = deque()
        self._writing = threading.Lock()

    async def run(self, started: Callable[[], None]) -> None:
        with self._events.subscribe(QUEUE_EVENTS) as queue:
            started()
            try:
                while True:
                    self._waiting.append(await queue.get())
                    await self._clock.sleep(GATHER_S)
                    self._waiting.extend(queue.drain())
                    self._count_dropped(queue)
                    await self._workers.run(self._flush)
            finally:
                self._waiting.extend(queue.drain())
                self._flush()  # the last turn's lines; short, and the loop is about to end

    def _count_dropped(self, queue: EventQueue) -> None:
        if queue.dropped > self._dropped:
            log.warning("%d events came too fast for the traces and are missing there", queue.dropped - self._dropped)
            self._dropped = queue.dropped

    def _flush(self) -> None:
        """Write what waits. A cancelled `run` cannot know whether its worker had begun: who comes first takes it."""
        with self._writing:
            batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
            self._write(self._lines(batch))

    def _lines(self, batch: Iterable[Recorded]) -> dict[Path, list[str]]:
        """Sort events into files."""
        lines: dict[Path, list[str]] = defaultdict(list)
        for recorded in batch:
            for kind in kinds_of(recorded.event):
                path = self._folder / f"{recorded.at:%Y-%m-%d}" / f"{kind}.jsonl"
                lines[path].append(to_line(recorded, kind, content=self._content))
        return lines

    def _write(self, lines: Mapping[Path, list[str]]) -> None:
        try:
            for path, texts in lines.items():
                _append(path, "".join(texts).encode("utf-8", "backslashreplace"))
        except OSError as error:
            if not self._failing:
                log.warning("traces cannot be written to %s: %s", self._folder, error.strerror)
            self._failing = True
        else:
            self._failing = False


def kinds_of(event: Event) -> tuple[Kind, ...]:
    """Return the files an event belongs to; a failure stands in "error" as well."""
    match event:
        case happened.ModelCalled():
            return ("llm_call", "error") if event.status == "error" else ("llm_call",)
        case happened.ToolStarted() | happened.ToolCalled():
            return ("tool_exec",)
        case happened.MessageReceived() | happened.MessageSettled():
            return ("channel_msg",)
        case happened.MessageDelivered():
            return ("channel_msg",) if event.ok else ("channel_msg", "error")
        case happened.TurnEnded():
            return ("agent_event", "error") if event.outcome == "failed" else ("agent_event",)
        case happened.ServiceState():
            return ("agent_event", "error") if event.state == "down" else ("agent_event",)
        case happened.ConversationCompacted():
            return ("agent_event", "error") if event.error else ("agent_event",)
        case happened.DownloadProgress():
            return ("agent_event", "error") if event.state == "failed" else ("agent_event",)
        case (
            happened.TurnStarted()
            | happened.QueueChanged()
            | happened.ProviderChanged()
            | happened.HistoryTrimmed()
            | happened.ConversationChanged()
        ):
            return ("agent_event",)


def to_line(recorded: Recorded, kind: Kind, *, content: bool) -> str:
    """Return one line, e.g. {"ts": "2026-11-30T15:00:00.123+00:00", "type": "tool_exec", "event": "ToolCalled", …}."""
    event = recorded.event
    head: dict[str, Json] = {
        "ts": recorded.at.isoformat(timespec="milliseconds"),
        "type": kind,
        "event": type(event).__name__,
        "agent": AGENT_ID,
        "number": recorded.number,
    }
    body = {field.name: _to_json(getattr(event, field.name), content=content) for field in dataclasses.fields(event)}
    return json.dumps(head | body, ensure_ascii=False, allow_nan=False) + "\n"


def _to_json(value: object, *, content: bool) -> Json:
    """Return the value in JSON's terms; what has none becomes text."""
    match value:
        case ConversationKey():
            return redact(":".join(value))
        case str():
            return redact(value) if content else preview(redact(value))
        case None | bool() | int():
            return value
        case float() if math.isfinite(value):
            return value
        case tuple():
            return [_to_json(item, content=content) for item in cast("tuple[object, ...]", value)]
        case _:
            return preview(redact(repr(value)))


def _append(path: Path, data: bytes) -> None:
    """Add whole lines or nothing: what a full disk cut short is taken back."""
    path.parent.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        size_bytes = os.fstat(descriptor).st_size
        if os.write(descriptor, data) != len(data):
            os.ftruncate(descriptor, size_bytes)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)
