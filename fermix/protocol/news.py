"""What the daemon tells clients that called `events.subscribe`: every event of the socket and its shape."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict  # pydantic reads no other before Python 3.12


class MessageAccepted(TypedDict):
    """`message.accepted`: a message entered a session, from this client or another."""

    session: str
    id: str
    text: str
    at: str


class Waiting(TypedDict):
    id: str
    text: str


class QueueState(TypedDict):
    """`queue.changed`: what runs and what waits behind it, in order."""

    session: str
    running: str | None
    waiting: list[Waiting]


class TurnBegun(TypedDict):
    """`turn.started`."""

    session: str
    turn_id: str
    message_id: str


class TurnDelta(TypedDict):
    """`turn.delta`: more text of the running turn; may be dropped for a slow client, the reply is whole.
    For kind "tool", `text` is the name of the tool whose call is being written.
    """

    session: str
    message_id: str
    kind: Literal["text", "reasoning", "tool"]
    text: str


class ToolBegun(TypedDict):
    """`tool.started`; `arguments` is a preview of their JSON."""

    session: str
    turn_id: str
    call_id: str
    name: str
    arguments: str


class ToolEnded(TypedDict):
    """`tool.finished`; `result` is a preview, `outside` says that it holds words of others."""

    session: str
    turn_id: str
    call_id: str
    name: str
    ok: bool
    duration_s: float
    result: str
    outside: bool


class ReplySent(TypedDict):
    """`reply`: a whole text for this message. `model` is None when Fermix itself speaks (a command's answer, an
    error). A reply that comes again after a restart has the same `key`: show it once. `waits`: it is a question, and
    its turn stands still until it is answered: show it at once.
    """

    session: str
    message_id: str
    text: str
    model: str | None
    key: str
    waits: bool


class TurnOver(TypedDict):
    """`turn.ended`: always the last event of a message that was accepted, also when no turn ran for it
    ("handled": a command or an empty message). `error` is one sentence for a person, "" unless failed.
    """

    session: str
    message_id: str
    outcome: Literal["completed", "cancelled", "failed", "handled"]
    error: str
    duration_s: float
    input_tokens: int
    output_tokens: int


class ServiceNews(TypedDict):
    """`service`."""

    service: str
    state: Literal["up", "down", "parked"]
    reason: str


class DownloadNews(TypedDict):
    """`download`."""

    name: str
    done_bytes: int
    total_bytes: int
    state: Literal["running", "verifying", "done", "failed"]
    error: str


class HistoryChanged(TypedDict):
    """`conversation.changed`: load the history again."""

    session: str


class EventsDropped(TypedDict):
    """`events.dropped`: this client was too slow; `count` deltas are gone."""

    count: int


EVENTS = (
    "message.accepted",
    "queue.changed",
    "turn.started",
    "turn.delta",
    "tool.started",
    "tool.finished",
    "reply",
    "turn.ended",
    "service",
    "download",
    "conversation.changed",
    "events.dropped",
)
