"""The connected clients and what they are told. Deltas and replies come from the local channel, the rest from
the event stream; both leave in the order in which they happened.

A client that stops reading never slows the daemon: deltas are dropped first, then the client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from fermix.channels.local import NAME
from fermix.events import (
    ConversationChanged,
    DownloadProgress,
    Event,
    EventQueue,
    MessageReceived,
    MessageSettled,
    QueueChanged,
    Recorded,
    ServiceState,
    ToolCalled,
    ToolStarted,
    TurnStarted,
)
from fermix.message import ConversationKey

Params = dict[str, object]


class Listener(Protocol):
    """One connected client that has subscribed."""

    def hears(self, session: str | None) -> bool:
        """Whether it wants news of this session; None stands for services and downloads."""
        ...

    def notify(self, event: str, params: Mapping[str, object], *, droppable: bool) -> None: ...


class Audience:
    """All listeners. Used from the loop's thread only."""

    def __init__(self, news: EventQueue) -> None:
        self._news = news
        self._listeners: list[Listener] = []
        self._texts: dict[str, str] = {}
        self._queues: dict[str, Params] = {}  # of each session where something runs or waits

    def add(self, listener: Listener) -> None:
        """Take a listener and tell it what runs and waits already, which no later event says."""
        self._pass_on(self._news.drain())
        if listener not in self._listeners:
            self._listeners.append(listener)
        for session, queue in self._queues.items():
            if listener.hears(session):
                listener.notify("queue.changed", queue, droppable=False)

    def remove(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    def tell(self, session: str, event: str, params: Mapping[str, object], *, droppable: bool = False) -> None:
        """Tell whoever hears this session, after everything that happened before."""
        self._pass_on(self._news.drain())
        self._tell(session, event, params, droppable)

    async def run(self, started: Callable[[], None]) -> None:
        """The service that passes events on."""
        started()
        while True:
            self._pass_on([await self._news.get()])

    @property
    def name(self) -> str:
        return "clients"

    def _pass_on(self, news: list[Recorded]) -> None:
        for item in news:
            if (words := self._words(item)) is not None:
                session, event, params = words
                if session is not None and event == "queue.changed":
                    self._remember(session, params)
                self._tell(session, event, params, droppable=_is_outdated_soon(event, params))

    def _tell(self, session: str | None, event: str, params: Mapping[str, object], droppable: bool) -> None:
        for listener in tuple(self._listeners):
            if listener.hears(session):
                listener.notify(event, params, droppable=droppable)

    def _remember(self, session: str, queue: Params) -> None:
        if queue["running"] or queue["waiting"]:
            self._queues[session] = queue
        else:
            self._queues.pop(session, None)

    def _words(self, item: Recorded) -> tuple[str | None, str, Params] | None:
        match item.event:
            case ServiceState(service, state, reason):
                return None, "service", {"service": service, "state": state, "reason": reason}
            case DownloadProgress(name, done, total, state, error):
                return None, "download", _download(name, done, total, state, error)
            case _:
                return self._session_words(item)

    def _session_words(self, item: Recorded) -> tuple[str | None, str, Params] | None:
        key: ConversationKey | None = getattr(item.event, "key", None)
        if key is None or key.channel != NAME:
            return None
        words = self._message_words(item, item.event) or _turn_words(item.event)
        return (key.chat_id, words[0], {"session": key.chat_id, **words[1]}) if words else None

    def _message_words(self, item: Recorded, event: Event) -> tuple[str, Params] | None:
        match event:
            case MessageReceived(_, message_id, _, text):
                self._texts[message_id] = text
                return "message.accepted", {"id": message_id, "text": text, "at": item.at.isoformat()}
            case QueueChanged(_, running, waiting):
                rows = [{"id": message_id, "text": self._texts.get(message_id, "")} for message_id in waiting]
                return "queue.changed", {"running": running, "waiting": rows}
            case MessageSettled(_, message_id, outcome, duration_s, error, input_tokens, output_tokens):
                self._texts.pop(message_id, None)
                return "turn.ended", {
                    "message_id": message_id,
                    "outcome": outcome,
                    "error": error,
                    "duration_s": duration_s,
                    "input_tokens": input_tokens,
                    "output_tokens": output_tokens,
                }
            case _:
                return None


def _turn_words(event: Event) -> tuple[str, Params] | None:
    match event:
        case TurnStarted(_, turn_id, message_id):
            return "turn.started", {"turn_id": turn_id, "message_id": message_id}
        case ToolStarted(_, turn_id, call_id, name, arguments):
            return "tool.started", {"turn_id": turn_id, "call_id": call_id, "name": name, "arguments": arguments}
        case ToolCalled(_, turn_id, call_id, name, ok, duration_s, result, outside):
            return "tool.finished", {
                "turn_id": turn_id,
                "call_id": call_id,
                "name": name,
                "ok": ok,
                "duration_s": duration_s,
                "result": result,
                "outside": outside,
            }
        case ConversationChanged():
            return "conversation.changed", {}
        case _:
            return None


def _is_outdated_soon(event: str, params: Params) -> bool:
    """Whether the next one says more. The end of a download is said once."""
    return event == "download" and params["state"] in ("running", "verifying")


def _download(name: str, done: int, total: int, state: str, error: str) -> Params:
    return {"name": name, "done_bytes": done, "total_bytes": total, "state": state, "error": error}
