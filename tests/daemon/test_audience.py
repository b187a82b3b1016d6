from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from fermix.daemon.audience import Audience
from fermix.events import (
    ConversationChanged,
    DownloadProgress,
    DownloadState,
    Event,
    EventQueue,
    Events,
    MessageReceived,
    MessageSettled,
    ModelCalled,
    QueueChanged,
    ServiceState,
    ToolCalled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from fermix.message import ConversationKey
from fermix.protocol.news import EVENTS
from fermix.trust import Trust
from tests.daemon.house import running
from tests.fakes.clock import START, ManualClock
from tests.waiting import until

KEY = ConversationKey("cli", "work", "root")


@dataclass
class Listener:
    sessions: set[str] | None = None
    services: bool = True
    told: list[tuple[str, dict[str, object], bool]] = field(default_factory=list)

    def hears(self, session: str | None) -> bool:
        return self.services if session is None else self.sessions is None or session in self.sessions

    def notify(self, event: str, params: Mapping[str, object], *, droppable: bool) -> None:
        self.told.append((event, dict(params), droppable))

    @property
    def names(self) -> list[str]:
        return [name for name, _, _ in self.told]


@pytest.fixture
def events() -> Events:
    return Events(ManualClock())


@pytest.fixture
def audience(events: Events) -> Audience:
    queue = EventQueue(1000)
    events._queues.append(queue)
    return Audience(queue)


def tell(audience: Audience, events: Events, *happened: Event) -> Listener:
    listener = Listener()
    audience.add(listener)
    for event in happened:
        events.emit(event)
    audience.tell("work", "reply", {})
    return listener


@pytest.mark.parametrize(
    ("event", "name", "params"),
    [
        (ServiceState("http", "down", "why"), "service", {"service": "http", "state": "down", "reason": "why"}),
        (
            DownloadProgress("m", 1, 2, "running"),
            "download",
            {"name": "m", "done_bytes": 1, "total_bytes": 2, "state": "running", "error": ""},
        ),
        (
            MessageReceived(KEY, "m1", "operator", "hi"),
            "message.accepted",
            {"session": "work", "id": "m1", "text": "hi", "at": START.isoformat()},
        ),
        (QueueChanged(KEY, "m1", ()), "queue.changed", {"session": "work", "running": "m1", "waiting": []}),
        (TurnStarted(KEY, "t1", "m1"), "turn.started", {"session": "work", "turn_id": "t1", "message_id": "m1"}),
        (
            ToolStarted(KEY, "t1", "c1", "shell", "{}"),
            "tool.started",
            {"session": "work", "turn_id": "t1", "call_id": "c1", "name": "shell", "arguments": "{}"},
        ),
        (
            ToolCalled(KEY, "t1", "c1", "shell", True, 0.5, "out"),
            "tool.finished",
            {
                "session": "work",
                "turn_id": "t1",
                "call_id": "c1",
                "name": "shell",
                "ok": True,
                "duration_s": 0.5,
                "result": "out",
                "outside": False,
            },
        ),
        (
            MessageSettled(KEY, "m1", "failed", 1.5, "why", 3, 4),
            "turn.ended",
            {
                "session": "work",
                "message_id": "m1",
                "outcome": "failed",
                "error": "why",
                "duration_s": 1.5,
                "input_tokens": 3,
                "output_tokens": 4,
            },
        ),
        (ConversationChanged(KEY), "conversation.changed", {"session": "work"}),
    ],
)
def test_what_happened_is_told_in_the_protocol_s_words(
    audience: Audience, events: Events, event: Event, name: str, params: dict[str, object]
) -> None:
    listener = tell(audience, events, event)

    assert name in EVENTS
    assert listener.told == [(name, params, name == "download"), ("reply", {}, False)]


@pytest.mark.parametrize("state", ["done", "failed"])
def test_end_of_a_download_is_never_dropped(audience: Audience, events: Events, state: DownloadState) -> None:
    listener = tell(audience, events, DownloadProgress("m", 2, 2, state))

    assert [(name, droppable) for name, _, droppable in listener.told] == [("download", False), ("reply", False)]


def test_what_is_nobody_s_business_is_not_told(audience: Audience, events: Events) -> None:
    """Errors for the trace and other channels' conversations stay inside."""
    elsewhere = ConversationKey("telegram", "work", "root")
    listener = tell(
        audience,
        events,
        TurnEnded(KEY, "t1", "m1", "failed", 1.0, error="internal"),
        ModelCalled("t1", "p", "m", "ok", 1.0, 1, 1),
        MessageReceived(elsewhere, "m1", "operator", "private"),
    )

    assert listener.names == ["reply"]


def test_deltas_events_and_replies_keep_the_order_in_which_they_happened(audience: Audience, events: Events) -> None:
    listener = Listener()
    audience.add(listener)
    events.emit(TurnStarted(KEY, "t1", "m1"))
    audience.tell("work", "turn.delta", {"text": "a"}, droppable=True)
    events.emit(ToolStarted(KEY, "t1", "c1", "shell", "{}"))
    events.emit(ToolCalled(KEY, "t1", "c1", "shell", True, 0.1, "out"))
    audience.tell("work", "turn.delta", {"text": "b"}, droppable=True)
    audience.tell("work", "reply", {"text": "ab"})
    events.emit(MessageSettled(KEY, "m1", "completed", 1.0))
    audience.tell("work", "reply", {"text": "next"})

    assert listener.names == [
        "turn.started",
        "turn.delta",
        "tool.started",
        "tool.finished",
        "turn.delta",
        "reply",
        "turn.ended",
        "reply",
    ]


async def test_events_are_passed_on_without_anybody_telling_something(audience: Audience, events: Events) -> None:
    listener = Listener()
    audience.add(listener)
    async with running(audience.run):
        events.emit(TurnStarted(KEY, "t1", "m1"))
        await until(lambda: listener.names == ["turn.started"])


def test_the_queue_shows_the_texts_that_wait_and_forgets_them_when_settled(audience: Audience, events: Events) -> None:
    listener = tell(
        audience,
        events,
        MessageReceived(KEY, "m1", "operator", "first"),
        MessageReceived(KEY, "m2", "operator", "second"),
        QueueChanged(KEY, "m1", ("m2",)),
        MessageSettled(KEY, "m1", "completed", 1.0),
        MessageSettled(KEY, "m2", "cancelled", 0.0),
    )
    queue = next(params for name, params, _ in listener.told if name == "queue.changed")

    assert queue["waiting"] == [{"id": "m2", "text": "second"}]
    assert audience._texts == {}


def test_each_listener_hears_what_it_asked_for_until_it_leaves(audience: Audience, events: Events) -> None:
    work, other, services = Listener({"work"}, services=False), Listener({"other"}, services=False), Listener(set())
    for listener in (work, work, other, services):
        audience.add(listener)
    events.emit(ServiceState("http", "up"))
    audience.tell("work", "reply", {})
    audience.remove(work)
    audience.remove(work)
    audience.tell("work", "reply", {})

    assert (work.names, other.names, services.names) == (["reply"], [], ["service"])


def test_a_listener_that_leaves_while_it_is_told_disturbs_no_other(audience: Audience) -> None:
    class Leaving(Listener):
        def notify(self, event: str, params: Mapping[str, object], *, droppable: bool) -> None:
            audience.remove(self)

    last = Listener()
    for listener in (Leaving(), Leaving(), last):
        audience.add(listener)
    audience.tell("work", "reply", {})

    assert last.names == ["reply"]


def test_who_comes_later_is_told_what_runs_and_waits(audience: Audience, events: Events) -> None:
    """Without it a screen that opens on a running turn, such as one taken up after a crash, looks idle."""
    first = tell(
        audience, events, MessageReceived(KEY, "m2", Trust.OPERATOR, "second"), QueueChanged(KEY, "m1", ("m2",))
    )
    late, other = Listener(), Listener(sessions={"home"})
    audience.add(late)
    audience.add(other)

    queue = {"session": "work", "running": "m1", "waiting": [{"id": "m2", "text": "second"}]}
    assert late.told == [("queue.changed", queue, False)]
    assert other.told == []
    assert first.names.count("queue.changed") == 1


def test_who_comes_when_nothing_runs_is_told_nothing(audience: Audience, events: Events) -> None:
    tell(audience, events, QueueChanged(KEY, "m1", ()), QueueChanged(KEY, None, ()))
    late = Listener()
    audience.add(late)

    assert late.told == []
