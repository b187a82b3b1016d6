"""What the daemon really says, against the types in `protocol/methods.py`: no field more, no field less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from fermix.events import (
    ConversationChanged,
    DownloadProgress,
    ServiceState,
    ToolCalled,
    ToolStarted,
    TurnStarted,
)
from fermix.message import ConversationKey
from fermix.protocol import memory, methods, news, sandbox, usage
from tests.agent.memory.facts.world import OWNER, draft
from tests.daemon.house import House, opened

EVENT_TYPES: dict[str, Any] = {
    "message.accepted": news.MessageAccepted,
    "queue.changed": news.QueueState,
    "turn.started": news.TurnBegun,
    "turn.delta": news.TurnDelta,
    "tool.started": news.ToolBegun,
    "tool.finished": news.ToolEnded,
    "reply": news.ReplySent,
    "turn.ended": news.TurnOver,
    "service": news.ServiceNews,
    "download": news.DownloadNews,
    "conversation.changed": news.HistoryChanged,
    "events.dropped": news.EventsDropped,
}
ASKED: tuple[tuple[str, dict[str, object], Any], ...] = (
    ("hello", {"protocol": methods.PROTOCOL, "client": "again"}, methods.Welcome),
    ("events.subscribe", {"sessions": None, "services": True}, methods.Nothing),
    ("message.send", {"id": "m1", "session": "cli", "text": "hello"}, methods.Nothing),
    ("turn.stop", {"session": "cli"}, methods.Stopped),
    ("usage", {"days": 3}, usage.UsageReport),
    ("memory.list", {"archived": False}, memory.MemoryList),
    ("memory.show", {"id": 1}, memory.ShownMemory),
    ("memory.history", {}, memory.MemoryChanges),
    ("memory.revisions", {"name": "USER.md"}, memory.Revisions),
    ("memory.revision", {"name": "USER.md", "revision": 1}, memory.RevisionText),
    ("memory.search", {"query": "home"}, memory.SearchResult),
    ("memory.forget", {"id": 1}, memory.ChangedMemory),
    ("memory.restore", {"id": 1}, memory.ChangedMemory),
    ("memory.rollback", {"name": "USER.md", "revision": 1}, memory.RolledBack),
    ("conversation.list", {}, methods.ConversationList),
    ("conversation.history", {"session": "cli", "limit": 10}, methods.History),
    ("status", {}, methods.Status),
    ("channels", {}, methods.Channels),
    ("sandbox.status", {}, sandbox.SandboxStatus),
    ("sandbox.explain", {"path": "/etc", "cwd": "/tmp"}, sandbox.Explained),
    ("sandbox.variable", {"name": "LANG", "reveal": True}, sandbox.Variable),
    ("sandbox.propose", {"words": ["sandbox", "mode", "strict"]}, sandbox.Proposed),
    ("sandbox.apply", {"words": ["sandbox", "mode", "strict"]}, sandbox.Applied),
    ("config.reload", {}, methods.Reloaded),
    ("model.fetch", {}, methods.Nothing),
    ("daemon.stop", {}, methods.Nothing),
)


def fits(kind: Any, value: object) -> None:
    TypeAdapter(kind).validate_python(value, strict=True, extra="forbid")


def happen(house: House) -> None:
    """Let everything happen that a fake agent leaves out."""
    key = ConversationKey("cli", "cli", "root")
    for event in (
        TurnStarted(key, "t1", "m1"),
        ToolStarted(key, "t1", "c1", "shell", "{}"),
        ToolCalled(key, "t1", "c1", "shell", True, 0.5, "done"),
        ConversationChanged(key),
        ServiceState("http", "up"),
        DownloadProgress("model", 1, 2, "running"),
    ):
        house.events.emit(event)


async def test_every_event_has_the_fields_that_are_written_down(tmp_path: Path) -> None:
    async with opened(tmp_path) as house:
        dial = await house.dial()
        await dial.subscribe(services=True)
        happen(house)
        await dial.ask("hello")
        await dial.next("turn.ended")

    for message in dial.news:
        fits(EVENT_TYPES[message["method"]], message["params"])
    assert tuple(EVENT_TYPES) == news.EVENTS
    assert {message["method"] for message in dial.news} == set(news.EVENTS) - {"events.dropped"}


async def test_every_result_has_the_fields_that_are_written_down(tmp_path: Path) -> None:
    async with opened(tmp_path) as house:
        await house.facts.store(draft("identity", "home", "Lisbon"), OWNER)
        dial = await house.dial()
        sealed: dict[str, object] = {}
        for method, params, kind in ASKED:
            result = (await dial.request(method, params | (sealed if method == "sandbox.apply" else {})))["result"]
            fits(kind, result)
            sealed = {"seal": result.get("seal")}

    assert {method for method, _, _ in ASKED} == set(methods.METHODS)
