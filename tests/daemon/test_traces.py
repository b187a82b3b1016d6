"""Traces tell what happened, without secrets, and never stand in the way of a reply."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fermix.config.secrets import Secret
from fermix.daemon import traces
from fermix.daemon.traces import TraceWriter, kinds_of, to_line
from fermix.events import (
    ConversationChanged,
    ConversationCompacted,
    DownloadProgress,
    Event,
    Events,
    HistoryTrimmed,
    MessageDelivered,
    MessageReceived,
    MessageSettled,
    ModelCalled,
    ProviderChanged,
    QueueChanged,
    Recorded,
    ServiceState,
    ToolCalled,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from fermix.message import ConversationKey
from fermix.workers import Workers
from tests.requirements import covers

KEY = ConversationKey("cli", "main", "root")
NOON = datetime(2026, 11, 30, 12, 0, 0, 123_000, tzinfo=UTC)
EVERY_EVENT: tuple[tuple[Event, tuple[str, ...]], ...] = (
    (ServiceState("socket", "up"), ("agent_event",)),
    (ServiceState("socket", "down", "gone"), ("agent_event", "error")),
    (MessageReceived(KEY, "m1", "operator", "hello"), ("channel_msg",)),
    (QueueChanged(KEY, "m1", ("m2", "m3")), ("agent_event",)),
    (TurnStarted(KEY, "t1", "m1"), ("agent_event",)),
    (TurnEnded(KEY, "t1", "m1", "completed", 0.5), ("agent_event",)),
    (TurnEnded(KEY, "t1", "m1", "failed", 0.5, error="boom"), ("agent_event", "error")),
    (ModelCalled("t1", "openai", "gpt", "ok", 0.5, 10, 5), ("llm_call",)),
    (ModelCalled("t1", "openai", "gpt", "error", 0.5, 0, 0, error="401"), ("llm_call", "error")),
    (ProviderChanged("t1", "a/b", "c/d", "quota"), ("agent_event",)),
    (ToolStarted(KEY, "t1", "c1", "shell", "{}"), ("tool_exec",)),
    (ToolCalled(KEY, "t1", "c1", "shell", False, 0.1, "no"), ("tool_exec",)),
    (MessageDelivered(KEY, "m1", True, "hi"), ("channel_msg",)),
    (MessageDelivered(KEY, "m1", False, "hi", "gone"), ("channel_msg", "error")),
    (MessageSettled(KEY, "m1", "completed", 0.5), ("channel_msg",)),
    (ConversationChanged(KEY), ("agent_event",)),
    (HistoryTrimmed(KEY, "t1", 3, 9), ("agent_event",)),
    (ConversationCompacted(KEY, "after", 8, 900, 90, 1, measured=True), ("agent_event",)),
    (ConversationCompacted(KEY, "after", error="no model"), ("agent_event", "error")),
    (DownloadProgress("model", 1, 2, "running"), ("agent_event",)),
    (DownloadProgress("model", 1, 2, "failed", "no network"), ("agent_event", "error")),
)


class Noon:
    def now(self) -> datetime:
        return NOON

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@asynccontextmanager
async def tracing(folder: Path, *, content: bool = False) -> AsyncGenerator[Events]:
    """Everything emitted inside is on disk afterwards, as at the end of the daemon."""
    events, workers, up = Events(Noon()), Workers(), asyncio.Event()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        writer = group.create_task(TraceWriter(events, Noon(), folder, workers, content=content).run(up.set))
        await up.wait()
        yield events
        writer.cancel()
    workers.close()


def lines(folder: Path, kind: str) -> list[dict[str, object]]:
    text = (folder / "2026-11-30" / f"{kind}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@covers("home.traces")
async def test_each_event_is_one_line_in_the_file_of_its_day_and_type(tmp_path: Path) -> None:
    async with tracing(tmp_path) as events:
        for event, _ in EVERY_EVENT:
            events.emit(event)

    (first, *_) = lines(tmp_path, "tool_exec")
    assert first == {
        "ts": "2026-11-30T12:00:00.123+00:00",
        "type": "tool_exec",
        "event": "ToolStarted",
        "agent": "main",
        "number": 11,
        "key": "cli:main:root",
        "turn_id": "t1",
        "call_id": "c1",
        "name": "shell",
        "arguments": "{}",
        "exposed": "no",
    }
    found = {
        kind: len(lines(tmp_path, kind)) for kind in ("llm_call", "tool_exec", "agent_event", "channel_msg", "error")
    }
    assert sum(found.values()) == sum(len(kinds) for _, kinds in EVERY_EVENT)


@pytest.mark.parametrize(("event", "kinds"), EVERY_EVENT, ids=lambda value: type(value).__name__)
def test_every_event_has_a_type_and_a_line(event: Event, kinds: tuple[str, ...]) -> None:
    assert kinds_of(event) == kinds
    line = to_line(Recorded(NOON, 1, event), kinds_of(event)[0], content=False)
    assert json.loads(line)["event"] == type(event).__name__


def test_every_kind_of_event_is_in_the_table_above() -> None:
    assert {type(event) for event, _ in EVERY_EVENT} == set(Event.__args__)  # pyright: ignore


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "lone \udc80", "line\nbreak \u2028", "\0", 10**400])
def test_value_that_json_does_not_know_becomes_text(tmp_path: Path, value: object) -> None:
    event = ModelCalled("t1", "p", "m", "error", value, 0, 0, error=str(value)[:20])  # pyright: ignore

    line = to_line(Recorded(NOON, 1, event), "llm_call", content=False).encode("utf-8", "backslashreplace")

    assert line.count(b"\n") == 1
    json.loads(line, parse_constant=lambda name: pytest.fail(name))


async def test_bodies_are_previews_unless_content_is_asked_for(tmp_path: Path) -> None:
    for content in (False, True):
        async with tracing(tmp_path / str(content), content=content) as events:
            events.emit(MessageReceived(KEY, "m1", "operator", "x" * 5_000))

    (short,) = lines(tmp_path / "False", "channel_msg")
    (whole,) = lines(tmp_path / "True", "channel_msg")
    assert short["text"] == "x" * 2_000 + "… (+3000 characters)"
    assert whole["text"] == "x" * 5_000


async def test_no_secret_reaches_a_trace_even_where_a_preview_cuts_it(tmp_path: Path) -> None:
    """SEC-01"""
    canary = Secret("canary-9b1c-0123456789-abcdef").reveal()
    async with tracing(tmp_path) as events:
        events.emit(ToolCalled(KEY, "t1", "c1", "shell", True, 0.1, "x" * 1_985 + canary))
        events.emit(TurnEnded(KEY, "t1", "m1", "failed", 0.1, error=f"https://host/bot{canary}/x"))
        events.emit(ModelCalled("t1", "p", "m", "error", 0.1, 0, 0, error=f'{{"api_key": "{canary}"}}'))

    found = [str(line) for kind in ("tool_exec", "agent_event", "llm_call", "error") for line in lines(tmp_path, kind)]
    assert len(found) == 5
    assert "canary-9b1c" not in "".join(found)


async def test_traces_are_private(tmp_path: Path) -> None:
    async with tracing(tmp_path / "traces") as events:
        events.emit(ConversationChanged(KEY))

    day = tmp_path / "traces" / "2026-11-30"
    assert stat.S_IMODE(day.stat().st_mode) == 0o700
    assert stat.S_IMODE((day / "agent_event.jsonl").stat().st_mode) == 0o600


@covers("traces.best-effort")
async def test_folder_that_cannot_be_written_is_said_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = Path("/dev/null/traces")

    async with tracing(blocked) as events:
        for _ in range(5):
            events.emit(ConversationChanged(KEY))
            await asyncio.sleep(0)

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "traces cannot be written to" in caplog.text


def test_writing_resumes_when_the_disk_is_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "traces"
    writer = TraceWriter(Events(Noon()), Noon(), folder, Workers(), content=False)
    line = {folder / "2026-11-30" / "error.jsonl": ["{}\n"]}

    folder.write_text("in the way", encoding="utf-8")
    writer._write(line)
    folder.unlink()
    writer._write(line)

    assert lines(folder, "error") == [{}]
    assert len(caplog.records) == 1


async def test_stop_in_the_middle_of_a_write_neither_loses_nor_doubles_a_line(tmp_path: Path) -> None:
    async with tracing(tmp_path) as events:
        for number in range(200):
            events.emit(ConversationChanged(KEY))
            if number % 7 == 0:
                await asyncio.sleep(0)

    assert [line["number"] for line in lines(tmp_path, "agent_event")] == list(range(1, 201))


def test_line_that_a_full_disk_cuts_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "day" / "error.jsonl"
    traces._append(path, b'{"a": 1}\n')
    write = traces.os.write
    monkeypatch.setattr(traces.os, "write", lambda descriptor, data: write(descriptor, data[:4]))

    with pytest.raises(OSError, match="No space left"):
        traces._append(path, b'{"b": 2}\n')

    assert path.read_bytes() == b'{"a": 1}\n'


async def test_burst_past_the_bound_loses_the_oldest_and_says_how_many(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "QUEUE_EVENTS", 10)
    with caplog.at_level(logging.WARNING):
        async with tracing(tmp_path) as events:
            for _ in range(25):
                events.emit(ConversationChanged(KEY))
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    assert [line["number"] for line in lines(tmp_path, "agent_event")] == list(range(16, 26))
    assert "15 events came too fast" in caplog.text
