from __future__ import annotations

from pathlib import Path

import pytest

from fermix.daemon.health import TOO_EARLY, HealthBoard
from fermix.events import EventQueue, Events, ServiceState, TurnStarted
from fermix.home import Home
from fermix.message import ConversationKey
from fermix.protocol.methods import ChannelHealth
from tests.daemon.house import NOBODY, FakeModels, running
from tests.fakes.clock import START, ManualClock
from tests.waiting import until

Board = tuple[HealthBoard, Events, FakeModels]


@pytest.fixture
def board(tmp_path: Path) -> Board:
    clock = ManualClock()
    events, queue, models = Events(clock), EventQueue(100), FakeModels()
    events._queues.append(queue)
    health = HealthBoard(Home(tmp_path), clock, queue)
    health.watch_models(models)
    return health, events, models


def test_ready_is_judged_from_who_can_answer_and_what_runs(board: Board) -> None:
    """Setup required beats degraded beats ready: reference 3, section 11.1."""
    health, events, models = board
    told = [health.overall()]
    events.emit(ServiceState("http", "up"))
    told.append(health.overall())
    events.emit(ServiceState("http", "down", "broken"))
    told.append(health.overall())
    models.current = None
    told.append(health.overall())
    events.emit(ServiceState("http", "up"))
    told.append(health.overall())
    models.current = "fake/model"
    events.emit(ServiceState("http", "parked", "the port is taken"))
    told.append(health.overall())

    assert told == ["ready", "ready", "degraded", "setup_required", "setup_required", "degraded"]


def test_before_anybody_can_be_asked_setup_is_required(tmp_path: Path) -> None:
    health = HealthBoard(Home(tmp_path), ManualClock(), EventQueue(1))

    assert (health.overall(), health.failures()) == ("setup_required", [TOO_EARLY])


def test_each_failure_is_one_sentence(board: Board) -> None:
    health, events, models = board
    models.current = None
    events.emit(ServiceState("http", "parked", "the port is taken"))
    events.emit(ServiceState("socket", "up"))

    assert health.failures() == [NOBODY, "http: the port is taken"]


def test_the_last_state_counts_and_services_come_by_name(board: Board) -> None:
    health, events, _ = board
    for name, state in (("socket", "down"), ("audience", "up"), ("socket", "up")):
        events.emit(ServiceState(name, state))  # type: ignore[arg-type]
    events.emit(TurnStarted(ConversationKey("cli", "a", "root"), "t", "m"))

    assert health.services() == [
        {"service": "audience", "state": "up", "reason": ""},
        {"service": "socket", "state": "up", "reason": ""},
    ]


def test_the_report_has_the_shape_of_the_reference(board: Board, tmp_path: Path) -> None:
    health, events, models = board
    events.emit(ServiceState("database", "down", "disk"))
    report = health.report()

    assert set(report) == {
        "status", "failures", "config", "restart_required?", "restart_reasons", "providers", "local_model", "channels",
        "memory", "services", "app", "version", "pid", "timestamp",
    }  # fmt: skip
    assert report["config"] == {
        "home": str(tmp_path),
        "path": str(tmp_path / "config.toml"),
        "workspace": str(tmp_path / "workspace"),
    }
    assert report["memory"] == {"store": "degraded", "conversation_store": "ready"}
    assert report["timestamp"] == START.isoformat()
    assert report["local_model"] == models.local()
    assert report["providers"] == [
        {"name": "fake", "status": "ready", "auth_mode": "api_key", "primary": True, "model": "model"}
    ]


class TwoChannels:
    """What a watch found."""

    def rows(self) -> list[ChannelHealth]:
        return [
            {"channel": "cli", "state": "ready", "reason": ""},
            {"channel": "telegram", "state": "degraded", "reason": "no sign of life"},
        ]


def test_the_report_tells_of_each_channel_whether_it_reads(board: Board) -> None:
    """Issue 3: a channel without proof is degraded in /health/ready, with the reason."""
    health, events, _ = board
    health.watch_channels(TwoChannels())
    events.emit(ServiceState("channel telegram", "down", "no sign of life"))
    report = health.report()

    assert (report["status"], report["failures"]) == ("degraded", ["channel telegram: no sign of life"])
    assert report["channels"] == health.channels() == TwoChannels().rows()


async def test_it_follows_the_events_by_itself(board: Board) -> None:
    health, events, _ = board
    async with running(health.run):
        events.emit(ServiceState("http", "up"))
        await until(lambda: "http" in health._states)
