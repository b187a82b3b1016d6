"""Health of a channel means that a message sent now would be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from fermix.channels.local import LocalChannel
from fermix.clock import SystemClock
from fermix.daemon.audience import Audience
from fermix.daemon.health import HealthBoard
from fermix.daemon.http import HttpServer
from fermix.daemon.liveness import LOOK_S, NO_ADAPTER, NO_SIGN, SILENT, SILENT_S, ChannelWatch, judge
from fermix.events import EventQueue, Events, ServiceState
from fermix.home import Home
from tests.daemon.house import FakeModels, running
from tests.fakes.channel import FakeChannel
from tests.fakes.clock import ManualClock
from tests.waiting import until


@pytest.mark.parametrize(
    ("alive_at", "reason"),
    [(None, NO_SIGN), (1_000.0 - SILENT_S - 0.1, SILENT), (1_000.0 - SILENT_S, ""), (1_000.0, "")],
)
def test_a_channel_is_judged_by_its_last_proof_of_life(alive_at: float | None, reason: str) -> None:
    channel = FakeChannel("telegram")
    channel.alive_at = alive_at

    state = "degraded" if reason else "ready"
    assert judge(channel, 1_000.0) == {"channel": "telegram", "state": state, "reason": reason}


def test_the_local_channel_is_always_alive() -> None:
    """Its socket is in this process."""
    assert judge(LocalChannel(Audience(EventQueue(1))), SystemClock().monotonic())["state"] == "ready"


async def test_a_channel_that_is_on_and_that_nothing_connects_to_is_degraded() -> None:
    clock, events = ManualClock(), Events(ManualClock())
    channel = FakeChannel("telegram")
    channel.alive_at = clock.monotonic()
    watch = ChannelWatch([channel], ["telegram", "slack"], events, clock)
    async with running(watch.run):
        assert watch.rows() == [
            {"channel": "telegram", "state": "ready", "reason": ""},
            {"channel": "slack", "state": "degraded", "reason": NO_ADAPTER},
        ]


async def test_who_watches_is_told_once_when_a_channel_falls_silent_and_when_it_is_back() -> None:
    clock, channel = ManualClock(), FakeChannel("telegram")
    channel.alive_at = None
    events = Events(clock)
    with events.subscribe(100) as news:
        watch = ChannelWatch([channel], [], events, clock)
        told: list[ServiceState] = []
        async with running(watch.run):
            for alive_at in (None, 5.0, 5.0, None):
                channel.alive_at = alive_at
                await clock.until_asleep()
                told += [item.event for item in news.drain() if isinstance(item.event, ServiceState)]
                clock.advance(LOOK_S)
            await clock.until_asleep()
            clock.advance(SILENT_S + 10.0)
            channel.alive_at = 5.0
            await clock.until_asleep()
            told += [item.event for item in news.drain() if isinstance(item.event, ServiceState)]

    assert told == [
        ServiceState("channel telegram", "down", NO_SIGN),
        ServiceState("channel telegram", "up"),
        ServiceState("channel telegram", "down", NO_SIGN),
        ServiceState("channel telegram", "down", SILENT),
    ]


async def ready(address: str) -> tuple[int, Mapping[str, object]]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{address}/health/ready") as answer:  # noqa: TID251
        return answer.status, json.loads(await answer.text())


async def test_a_channel_that_nobody_reads_makes_the_daemon_not_ready(tmp_path: Path) -> None:
    """Issue 3, health of a channel; reference 3, section 11.1: 200 only when ready, else 503 with the reason."""
    clock, channel = ManualClock(), FakeChannel("telegram")
    channel.alive_at = None
    events = Events(clock)
    async with AsyncExitStack() as stack:
        health = HealthBoard(Home(tmp_path), clock, stack.enter_context(events.subscribe(100)))
        watch, http = ChannelWatch([channel], [], events, clock), HttpServer("127.0.0.1", 0, health)
        health.watch_models(FakeModels())
        health.watch_channels(watch)
        await stack.enter_async_context(running(watch.run))
        await stack.enter_async_context(running(http.run))
        await until(lambda: not http.address.endswith(":0"))
        silent = await ready(http.address)
        channel.alive_at = 0.0
        await clock.until_asleep()
        clock.advance(LOOK_S)
        await until(lambda: watch.rows()[0]["state"] == "ready")
        status, report = await ready(http.address)

    assert (silent[0], silent[1]["status"]) == (503, "degraded")
    assert silent[1]["failures"] == [f"channel telegram: {NO_SIGN}"]
    assert silent[1]["channels"] == [{"channel": "telegram", "state": "degraded", "reason": NO_SIGN}]
    assert (status, report["status"], report["failures"]) == (200, "ready", [])
