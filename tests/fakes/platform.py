"""A messaging platform in miniature: what people see, what its API was asked, and how it fails.

Everything it ever did stands in one log, and what a chat shows is a fold of that log. With a file the log outlives
the process that writes it, so that a test can kill a daemon and ask afterwards what people saw.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from fermix.clock import Clock, SystemClock
from fermix.errors import ChannelUnavailable
from fermix.message import Message

Verb = Literal[
    "send", "open", "edit", "discard", "react", "ask", "typing", "download", "find", "say", "confirm", "refused"
]
Kind = Literal["message", "draft", "prompt"]
KINDS: dict[Verb, Kind] = {"send": "message", "open": "draft", "ask": "prompt"}
POLL_S = 0.02  # how long a poll waits for news when another process may be the one that writes them

_MESSAGE = TypeAdapter(Message)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log. `id` is the platform's, `answers` the message it replies to, `at` the clock's seconds.
    A "say" holds the whole inbound message as its text.
    """

    op: Verb
    chat: str = ""
    thread: str = ""
    id: str = ""
    text: str = ""
    key: str = ""
    answers: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Shown:
    """A message of ours as its chat shows it now. `edits` counts how often it changed."""

    id: str
    chat: str
    thread: str
    text: str
    key: str
    answers: str
    kind: Kind
    edits: int = 0


class Log:
    """The log, in memory or in a file that several processes append to; each line is one write."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: list[Entry] = []
        self._read_bytes = 0

    def append(self, entry: Entry) -> None:
        if self._path is None:
            self._entries.append(entry)
            return
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(asdict(entry)).encode() + b"\n")

    def entries(self) -> Sequence[Entry]:
        if self._path is not None and self._path.exists() and self._path.stat().st_size > self._read_bytes:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                whole, _, _ = file.read().rpartition(b"\n")
            self._read_bytes += len(whole) + 1 if whole else 0
            self._entries += [Entry(**json.loads(line)) for line in whole.splitlines()]
        return self._entries


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong at one call. `landed`: the platform did it all the same, unless `lost`, when it only may have;
    `gate`: first wait for this event.
    """

    reason: str = "the platform is away"
    retry_after_s: float | None = None
    landed: bool = False
    lost: bool = False
    gate: asyncio.Event | None = None
    only_slow: bool = False

    def error(self) -> ChannelUnavailable:
        return ChannelUnavailable(self.reason, retry_after_s=self.retry_after_s, landed=self.landed)


AWAY = Fault()
UNPARSABLE = Fault("the platform cannot parse this text")
LOST_ANSWER = Fault("the connection broke before the answer came", landed=True)


def rate_limited(seconds: float) -> Fault:
    """429, with the time that the platform wants."""
    return Fault("too many requests", retry_after_s=seconds)


def slow(gate: asyncio.Event) -> Fault:
    """Succeeds once the gate opens."""
    return Fault(gate=gate, only_slow=True)


@dataclass
class Platform:
    """The server side. Refuses what a real one refuses: empty or too long texts, edits of what is not there,
    edits faster than `edit_interval_s`, a repeated key where it is `idempotent` (answered with the first id).
    """

    text_limit: int | None = None
    unit: Callable[[str], int] = len
    edit_interval_s: float = 1.0
    idempotent: bool = False
    clock: Clock = field(default_factory=SystemClock)
    path: Path | None = None
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    down: bool = False
    """Every call fails while set."""

    def __post_init__(self) -> None:
        self._log = Log(self.path)
        self._faults: dict[Verb, deque[Fault]] = {}
        self._edited_at: dict[str, float] = {}
        self.calls: Counter[str] = Counter()
        self.downloaded_bytes = 0
        self.changed = asyncio.Event()

    # What a test arranges and asks.

    def fail(self, verb: Verb, *faults: Fault) -> None:
        """The next calls of this verb go wrong in this way, one fault each."""
        self._faults.setdefault(verb, deque()).extend(faults)

    def log(self, *ops: Verb) -> list[Entry]:
        return [entry for entry in self._log.entries() if not ops or entry.op in ops]

    def shown(self, chat: str | None = None, thread: str | None = None) -> list[Shown]:
        """What the chats show now, in the order in which it came."""
        found: dict[str, Shown] = {}
        for entry in self._log.entries():
            match entry.op:
                case "send" | "open" | "ask":
                    found[entry.id] = _new(entry)
                case "edit":
                    found[entry.id] = replace(found[entry.id], text=entry.text, edits=found[entry.id].edits + 1)
                case "discard":
                    found.pop(entry.id, None)
                case _:
                    continue
        return [one for one in found.values() if chat in (None, one.chat) and thread in (None, one.thread)]

    def texts(self, chat: str | None = None, thread: str | None = None) -> list[str]:
        return [one.text for one in self.shown(chat, thread)]

    def say(self, message: Message) -> None:
        """Somebody writes; the message is offered until it is confirmed."""
        body = _MESSAGE.dump_json(message).decode()
        self._log.append(Entry("say", message.chat_id, message.thread, message.id, body, at=self.clock.monotonic()))
        self.changed.set()

    def unconfirmed(self) -> list[Message]:
        """What was said and not confirmed yet, oldest first."""
        confirmed = {entry.id for entry in self.log("confirm")}
        return [_MESSAGE.validate_json(entry.text) for entry in self.log("say") if entry.id not in confirmed]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something that the platform did makes this true."""
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    # What its API does.

    async def call(self, entry: Entry) -> str:
        """Do one call; returns the id of what it made or changed. Raises: ChannelUnavailable."""
        verb = entry.op
        self.calls[verb] += 1
        self.changed.set()
        waiting = self._faults.get(verb)
        fault = waiting.popleft() if waiting else (AWAY if self.down else None)
        if fault is not None and fault.gate is not None:
            await fault.gate.wait()
        if fault is None or fault.only_slow:
            return self._do(entry)
        if fault.landed and not fault.lost:
            self._do(entry)
        self.changed.set()
        raise fault.error()

    async def poll(self) -> list[Message]:
        """Return what is not confirmed, after a short wait when that is nothing."""
        if not (found := self.unconfirmed()):
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self.changed.wait()
            self.changed.clear()
            found = self.unconfirmed()
        return found

    def confirm(self, message: Message) -> None:
        """The client has it: it is not offered again."""
        self._log.append(Entry("confirm", message.chat_id, message.thread, message.id, at=self.clock.monotonic()))

    def find(self, chat: str, key: str) -> str | None:
        return next((one.id for one in self.shown(chat) if one.key == key), None)

    def _do(self, entry: Entry) -> str:
        self._refuse_bad_text(entry)
        if entry.op in ("edit", "discard"):
            self._refuse_bad_change(entry)
        if entry.op in ("send", "open", "ask") and self.idempotent and (known := self.find(entry.chat, entry.key)):
            return known
        if entry.op in ("open", "edit"):
            self._edited_at[entry.chat] = self.clock.monotonic()
        done = replace(entry, id=entry.id or f"p{len(self._log.entries()) + 1}", at=self.clock.monotonic())
        self._log.append(done)
        self.changed.set()
        return done.id

    def _refuse_bad_text(self, entry: Entry) -> None:
        if entry.op not in ("send", "open", "edit", "ask"):
            return
        if not entry.text.strip():
            self._refuse(entry, "message text is empty")
        if self.text_limit is not None and self.unit(entry.text) > self.text_limit:
            self._refuse(entry, f"message is too long: {self.unit(entry.text)} of {self.text_limit}")

    def _refuse_bad_change(self, entry: Entry) -> None:
        there = {one.id: one for one in self.shown(entry.chat)}
        if entry.id not in there:
            self._refuse(entry, "message to change not found")
        if entry.op == "discard":
            return
        if there[entry.id].text == entry.text:
            self._refuse(entry, "message is not modified")
        now, last = self.clock.monotonic(), self._edited_at.get(entry.chat)
        if last is not None and now - last < self.edit_interval_s:
            self._refuse(entry, "too many requests", retry_after_s=self.edit_interval_s - (now - last))

    def _refuse(self, entry: Entry, reason: str, retry_after_s: float | None = None) -> None:
        """What a careful client never sees stands in the log, so that a test can demand there was none."""
        self._log.append(replace(entry, op="refused", text=f"{entry.op}: {reason}", at=self.clock.monotonic()))
        raise ChannelUnavailable(reason, retry_after_s=retry_after_s)


def _new(entry: Entry) -> Shown:
    return Shown(entry.id, entry.chat, entry.thread, entry.text, entry.key, entry.answers, KINDS[entry.op])
