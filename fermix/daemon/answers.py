"""What each request of a local client does. Params are checked here, once, against protocol/methods.py."""

from __future__ import annotations

import mimetypes
import os
import re
import stat
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from fermix import __version__
from fermix.agent.budget import Budget
from fermix.agent.memory import Conversations, Entry
from fermix.agent.memory.facts import Facts
from fermix.agent.memory.search import Search
from fermix.agent.model import valid_text
from fermix.agent.sandbox import Policy
from fermix.channels import local
from fermix.clock import Clock
from fermix.daemon.audience import Audience
from fermix.daemon.health import HealthBoard, Models
from fermix.daemon.memory_answers import memory_methods
from fermix.daemon.params import Result, checked
from fermix.daemon.sandbox_answers import sandbox_methods
from fermix.daemon.search_answers import search_methods
from fermix.daemon.socket import Call, RequestError, check_protocol
from fermix.daemon.usage_answers import usage_methods
from fermix.gateway import Channel, Gateway
from fermix.home import Home
from fermix.message import PICTURE_TYPES, ROOT_THREAD, ConversationKey, LocalOrigin, Media
from fermix.native.peer import Peer, is_attended
from fermix.native.private import Used
from fermix.protocol.frames import encode
from fermix.protocol.methods import (
    MAX_LINE_BYTES,
    PROTOCOL,
    AttachmentName,
    Channels,
    Code,
    CommandWalls,
    GetHistory,
    Hello,
    HistoryEntry,
    Reloaded,
    SendMessage,
    Status,
    StopTurn,
    Subscribe,
)
from fermix.workers import Workers

MAX_ID_CHARS = 128
MAX_HISTORY = 500
HISTORY_BYTES = (
    MAX_LINE_BYTES // 2
)  # of one answer; a client refuses a longer line, and could never show the conversation
ENTRY_CHARS = 100_000
IN_PERSON = frozenset(
    {
        *("turn.stop", "config.reload", "daemon.stop", "sandbox.variable", "sandbox.propose", "sandbox.apply"),
        *("memory.forget", "memory.restore", "memory.rollback"),
    }
)  # what no confined or spawned program may do
MAX_ATTACHMENT_BYTES = 20 * 1024 * 1024


class Control(Protocol):
    """What clients may ask of the daemon itself."""

    async def reload(self) -> Reloaded: ...

    def fetch_model(self) -> None: ...

    def stop(self) -> None: ...

    def http_address(self) -> str: ...

    def environment(self) -> list[str]: ...

    def channels(self) -> Channels: ...

    async def commands(self) -> CommandWalls: ...

    async def used(self) -> Used: ...


@dataclass(frozen=True, slots=True)
class Rooms:
    """What requests reach, wired by the composition root."""

    home: Home
    clock: Clock
    gateway: Gateway
    channel: Channel
    conversations: Conversations
    audience: Audience
    health: HealthBoard
    models: Models
    workers: Workers
    control: Control
    policy: Policy
    facts: Facts
    budget: Budget
    search: Search


class Answers:
    """`Methods` of the socket server: a table from method name to function."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms
        self._methods: Mapping[str, Callable[[Call], Awaitable[Result]]] = {
            "hello": self._hello,
            "message.send": self._send,
            "turn.stop": self._stop_turn,
            "events.subscribe": self._subscribe,
            "conversation.list": self._list,
            "conversation.history": self._history,
            "status": self._status,
            **sandbox_methods(rooms.policy),
            **memory_methods(rooms.facts),
            **usage_methods(rooms.budget),
            **search_methods(rooms.facts, rooms.search),
            "channels": self._channels,
            "config.reload": self._reload,
            "model.fetch": self._fetch,
            "daemon.stop": self._stop,
        }

    async def answer(self, call: Call) -> Result:
        method = self._methods.get(call.method)
        if method is None:
            raise RequestError(Code.METHOD_NOT_FOUND, f"there is no method {call.method!r}")
        if call.method in IN_PERSON and not await self._rooms.workers.run(_is_attended, call.client.peer):
            problem = f"{call.method} is refused to a program that runs without a person; use your own terminal"
            raise RequestError(Code.REFUSED, problem)
        return await method(call)

    async def _hello(self, call: Call) -> Result:
        hello = checked(Hello, call.params)
        check_protocol(hello["protocol"])
        call.client.name = hello["client"][:64] or "unnamed"
        return {
            "protocol": PROTOCOL,
            "version": __version__,
            "pid": os.getpid(),
            "home": str(self._rooms.home.root),
            "model": self._rooms.models.current,
            "started_at": self._rooms.health.started_at.isoformat(),
        }

    async def _send(self, call: Call) -> Result:
        with _taken(call.descriptors) as files:
            wish = checked(SendMessage, call.params)
            _check_session(wish["session"])
            if not wish["id"].strip() or len(wish["id"]) > MAX_ID_CHARS:
                raise RequestError(Code.INVALID_PARAMS, f"id takes 1 to {MAX_ID_CHARS} characters, not all blank")
            if valid_text(wish["id"]) != wish["id"]:
                raise RequestError(Code.INVALID_PARAMS, "id holds half a character")
            media = await self._media(files, wish.get("attachments", []))
        message = local.to_message(
            message_id=wish["id"],
            session=wish["session"],
            text=wish["text"],
            origin=await self._rooms.workers.run(_origin, call.client.peer, wish.get("cwd")),
            media=media,
            received_at=self._rooms.clock.now(),
        )
        await self._rooms.gateway.ingest(message, self._rooms.channel)
        return {}

    async def _media(self, files: Sequence[int], names: Sequence[AttachmentName]) -> tuple[Media, ...]:
        """Read the passed files, whole and bounded."""
        if len(names) != len(files):
            problem = f"attachments: {len(names)} are named and {len(files)} descriptors came"
            raise RequestError(Code.INVALID_PARAMS, problem)
        run = self._rooms.workers.run
        return tuple(
            [
                await run(_read_media, descriptor, name["name"], name["mime"])
                for descriptor, name in zip(files, names, strict=True)
            ]
        )

    async def _stop_turn(self, call: Call) -> Result:
        wish = checked(StopTurn, call.params)
        stopped, dropped = self._rooms.gateway.stop(_key(wish["session"]), wish.get("message_id"))
        return {"stopped": stopped, "dropped": dropped}

    async def _subscribe(self, call: Call) -> Result:
        wish = checked(Subscribe, call.params)
        sessions = wish["sessions"]
        call.client.sessions = None if sessions is None else frozenset(sessions)
        call.client.services = wish["services"]
        self._rooms.audience.add(call.client)
        return {}

    async def _list(self, call: Call) -> Result:
        summaries = await self._rooms.conversations.listing(local.NAME)
        return {
            "conversations": [
                {
                    "session": summary.key.chat_id,
                    "title": summary.title,
                    "last_at": summary.last_at.isoformat(),
                    "messages": summary.messages,
                }
                for summary in summaries
            ]
        }

    async def _history(self, call: Call) -> Result:
        wish = checked(GetHistory, call.params)
        if not 0 < wish["limit"] <= MAX_HISTORY:
            raise RequestError(Code.INVALID_PARAMS, f"limit takes 1 to {MAX_HISTORY}")
        entries = await self._rooms.conversations.entries(_key(wish["session"]), wish["limit"])
        return {"entries": _fitting([_entry(entry) for entry in entries])}

    async def _status(self, call: Call) -> Result:
        rooms = self._rooms
        running, waiting = rooms.gateway.lanes.counts()
        used = await rooms.control.used()
        status: Status = {
            "overall": rooms.health.overall(),
            "version": __version__,
            "pid": os.getpid(),
            "uptime_s": (rooms.clock.now() - rooms.health.started_at).total_seconds(),
            "home": str(rooms.home.root),
            "http": rooms.control.http_address(),
            "model": rooms.models.current,
            "providers": rooms.models.rows(),
            "local_model": rooms.models.local(),
            "services": rooms.health.services(),
            "channels": rooms.health.channels(),
            "commands": await rooms.control.commands(),
            "memory_bytes": used.memory_bytes,
            "open_files": used.open_files,
            "environment": rooms.control.environment(),
            "turns_running": running,
            "turns_waiting": waiting,
            "failures": rooms.health.failures(),
        }
        return dict(status)

    async def _channels(self, call: Call) -> Result:
        return dict(self._rooms.control.channels())

    async def _reload(self, call: Call) -> Result:
        return dict(await self._rooms.control.reload())

    async def _fetch(self, call: Call) -> Result:
        self._rooms.control.fetch_model()
        return {}

    async def _stop(self, call: Call) -> Result:
        self._rooms.control.stop()
        return {}


@contextmanager
def _taken(waiting: deque[int]) -> Generator[Sequence[int]]:
    """Take every descriptor that came and close it on every way out: none may reach a later message."""
    files = tuple(waiting)
    waiting.clear()
    try:
        yield files
    finally:
        for descriptor in files:
            os.close(descriptor)


def _origin(peer: Peer, cwd: str | None) -> LocalOrigin:
    return LocalOrigin(local.request_directory(cwd, _is_folder), attended=_is_attended(peer))


def _is_attended(peer: Peer) -> bool:
    """Judged anew for each request: a program can confine itself after it has connected."""
    return is_attended(peer, os.getpid())


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - pathlib's raises for a name that no file system takes


def _check_session(session: str) -> None:
    if re.fullmatch(r"[A-Za-z0-9_-]{1,128}", session) is None:
        raise RequestError(Code.INVALID_PARAMS, "a session is 1 to 128 letters, digits, _ and -")


def _key(session: str) -> ConversationKey:
    _check_session(session)
    return ConversationKey(local.NAME, session, ROOT_THREAD)


def _fitting(entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Return the newest entries that fit into one line."""
    kept: deque[HistoryEntry] = deque()
    left_bytes = HISTORY_BYTES
    for entry in reversed(entries):
        left_bytes -= len(encode(entry))
        if left_bytes < 0:
            break
        kept.appendleft(entry)
    return list(kept)


def _shortened(text: str) -> str:
    return text if len(text) <= ENTRY_CHARS else f"{text[:ENTRY_CHARS]}… (+{len(text) - ENTRY_CHARS} characters)"


def _entry(entry: Entry) -> HistoryEntry:
    line: HistoryEntry = {"role": entry.role, "text": _shortened(entry.text), "at": entry.at.isoformat()}
    if entry.role == "assistant":
        line["model"] = entry.model or None
    if entry.role == "tool":
        line.update({"tool": entry.tool, "arguments": _shortened(entry.arguments), "ok": entry.ok})
    return line


def _read_media(descriptor: int, name: str, mime: str) -> Media:
    """Raises: RequestError for what is too large, unreadable or no regular file: a pipe could block for ever."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise RequestError(Code.INVALID_PARAMS, f"{name} is not a regular file")
    try:
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError as error:
        raise RequestError(Code.INVALID_PARAMS, f"{name} cannot be read: {error.strerror}") from error
    if len(data) > MAX_ATTACHMENT_BYTES:
        raise RequestError(Code.INVALID_PARAMS, f"{name} is larger than {MAX_ATTACHMENT_BYTES // 2**20} MiB")
    stated = mime or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Media("image" if stated in PICTURE_TYPES else "file", stated, data, name)
