"""The words on the daemon's Unix socket: JSON-RPC 2.0, one message a line, at most 4 MiB.

A client opens with `hello`; requests follow in any order; once it has called `events.subscribe` the daemon sends
notifications, whose method is the event's name (news.py). Attachments travel as file descriptors (SCM_RIGHTS) with the
line of their `message.send`, in the order of its `attachments`; a client sends such a line only when every request
before it is answered. The daemon names the channel: a client cannot.

    -> {"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1,"client":"ask"}}
    <- {"jsonrpc":"2.0","id":1,"result":{"protocol":1,"version":"0.1.0","pid":4711, ...}}
    <- {"jsonrpc":"2.0","method":"turn.delta","params":{"session":"cli","message_id":"m1","kind":"text","text":"Hi"}}

Params are checked by the daemon; results and events are written by the daemon only.
"""

from __future__ import annotations

from enum import IntEnum
from typing import (
    Literal,
    NotRequired,  # pydantic reads these only from here before Python 3.12
)

from typing_extensions import TypedDict

PROTOCOL = 1
MAX_LINE_BYTES = 4 * 1024 * 1024
DEFAULT_SESSION = "cli"


class Code(IntEnum):
    """Error codes of an answer. The first five are JSON-RPC's own."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL = -32603
    PROTOCOL_MISMATCH = -32001
    HELLO_REQUIRED = -32002
    REFUSED = -32003


class Hello(TypedDict):
    """`hello`, always first. `client` is a name for the log, at most 64 characters."""

    protocol: int
    client: str


class Welcome(TypedDict):
    """`model` is the route that would answer now ("openai/gpt-5.5"), None when none is usable."""

    protocol: int
    version: str
    pid: int
    home: str
    model: str | None
    started_at: str


class AttachmentName(TypedDict):
    """One passed descriptor: a regular file, opened for reading by the client."""

    name: str
    mime: str


class SendMessage(TypedDict):
    """`message.send`: hand a message to the gateway. `id` is made by the client and unique;
    `session` is 1 to 128 of letters, digits, "_" and "-". Answered with {} when the daemon has it.
    """

    id: str
    session: str
    text: str
    cwd: NotRequired[str | None]
    attachments: NotRequired[list[AttachmentName]]


class StopTurn(TypedDict):
    """`turn.stop`: end the running turn of a session, or the turn of one message wherever it stands."""

    session: str
    message_id: NotRequired[str | None]


class Stopped(TypedDict):
    """`stopped` turns were running, `dropped` messages were waiting."""

    stopped: int
    dropped: int


class Subscribe(TypedDict):
    """`events.subscribe`: `sessions` None means every local session. `services` adds service and download news."""

    sessions: list[str] | None
    services: bool


class ConversationInfo(TypedDict):
    """One row of `conversation.list`, newest first. `title` is the first user text, cut to 80 characters."""

    session: str
    title: str
    last_at: str
    messages: int


class ConversationList(TypedDict):
    conversations: list[ConversationInfo]


class GetHistory(TypedDict):
    """`conversation.history`: the last `limit` entries (at most 500), oldest first; fewer when they are very long, and
    a long text is cut: the answer is one line.
    """

    session: str
    limit: int


class HistoryEntry(TypedDict):
    """`role` "note" is a marker such as a stopped turn. `at` is ISO 8601 in UTC."""

    role: Literal["user", "assistant", "tool", "note"]
    text: str
    at: str
    model: NotRequired[str | None]
    tool: NotRequired[str]
    arguments: NotRequired[str]
    ok: NotRequired[bool]


class History(TypedDict):
    entries: list[HistoryEntry]


class ServiceRow(TypedDict):
    service: str
    state: Literal["up", "down", "parked"]
    reason: str


class ProviderRow(TypedDict):
    """`key_from` says where the key was found: "config", "auth.json", "keyring", an environment variable's name,
    "none needed" or "missing".
    """

    provider: str
    model: str
    primary: bool
    key_from: str
    usable: bool
    problem: str


class LocalModel(TypedDict):
    """The embedded default. `state`: "absent" (not fetched), "fetching", "ready", "loaded", "failed"."""

    state: Literal["absent", "fetching", "ready", "loaded", "failed"]
    name: str
    total_bytes: int
    done_bytes: int
    detail: str


class LocalRow(LocalModel):
    """`primary`: it is asked first; otherwise only while no provider is configured."""

    primary: bool


class ChannelHealth(TypedDict):
    """Whether a message that is sent to this channel now would be read; `reason` says why not, "" when it would."""

    channel: str
    state: Literal["ready", "degraded"]
    reason: str


class CommandWalls(TypedDict):
    """What holds the commands of tools on this system, in words and as facts. `form` None: nothing. `offline`: the
    network can be closed to them. `landlock`: the version of that interface, 0 for none. `missing`: what is not held
    although they are confined; mode strict runs none then.
    """

    told: str
    form: Literal["view", "rules", "seatbelt"] | None
    offline: bool
    landlock: int
    missing: list[str]


class Status(TypedDict):
    """`status`. `overall` as in GET /health/ready: "ready", "degraded" or "setup_required". `memory_bytes` counts what
    the daemon shares in part; it and `open_files` are None where the system does not say.
    """

    overall: Literal["ready", "degraded", "setup_required"]
    version: str
    pid: int
    uptime_s: float
    home: str
    http: str
    model: str | None
    providers: list[ProviderRow]
    local_model: LocalRow
    services: list[ServiceRow]
    channels: list[ChannelHealth]
    commands: CommandWalls
    memory_bytes: int | None
    open_files: int | None
    environment: list[str]
    turns_running: int
    turns_waiting: int
    failures: list[str]


class Reloaded(TypedDict):
    """`config.reload`: the route that would answer now, and the sections that count only after a restart."""

    model: str | None
    restart_required: list[str]


class ChannelRow(TypedDict):
    """A chat channel as configured. `problem` is one sentence, "" when nothing is wrong."""

    channel: str
    enabled: bool
    owner: str | None
    guests: int
    problem: str


class DeniedRow(TypedDict):
    """Somebody who wrote and may not. `name` is what they call themselves; `at` is ISO 8601 in UTC."""

    channel: str
    sender: str
    name: str
    at: str
    times: int


class Channels(TypedDict):
    """`channels`: the denied are held in memory only, the latest first."""

    channels: list[ChannelRow]
    denied: list[DeniedRow]


class Nothing(TypedDict):
    """No params, or no result."""


# Events, by their method names.


METHODS = (
    *("hello", "message.send", "turn.stop", "events.subscribe", "conversation.list", "conversation.history"),
    *("status", "channels", "config.reload", "model.fetch", "daemon.stop"),
    *("sandbox.status", "sandbox.explain", "sandbox.variable", "sandbox.propose", "sandbox.apply"),
    *("memory.list", "memory.show", "memory.forget", "memory.restore", "memory.rollback", "memory.history"),
    *("memory.revisions", "memory.revision", "memory.search", "usage"),
)
"""Those of the sandbox, the memory and the books are written down in protocol/sandbox.py, memory.py and usage.py."""
