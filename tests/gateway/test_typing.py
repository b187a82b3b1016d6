from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from fermix.gateway import typing as typing_module
from fermix.gateway.typing import BEAT_S, typing
from tests.fakes.channel import FakeChannel, message
from tests.fakes.clock import ManualClock
from tests.fakes.platform import AWAY, Platform, rate_limited, slow


@asynccontextmanager
async def shown(channel: FakeChannel) -> AsyncGenerator[ManualClock]:
    clock = ManualClock()
    async with typing(channel, message("hi"), clock):
        yield clock


def typist() -> FakeChannel:
    return FakeChannel("x", platform=Platform(), can=("typing",))


async def calls(channel: FakeChannel, count: int) -> None:
    await channel.platform.until(lambda: channel.platform.calls["typing"] >= count)


async def test_typing_is_shown_every_four_seconds_until_the_turn_is_done() -> None:
    channel = typist()
    async with shown(channel) as clock:
        for beat in range(1, 4):
            await calls(channel, beat)
            await clock.until_asleep()
            clock.advance(BEAT_S)
        await calls(channel, 4)
    clock.advance(BEAT_S)
    await asyncio.sleep(0)

    assert set(clock.sleeps) == {4.0}
    assert channel.platform.calls["typing"] == 4


async def test_a_failed_call_is_tried_again_and_never_touches_the_turn() -> None:
    channel = typist()
    channel.platform.fail("typing", AWAY, rate_limited(30))
    async with shown(channel) as clock:
        for seconds in (4, 30):
            await clock.until_asleep()
            clock.advance(seconds)
        await calls(channel, 3)
        await clock.until_asleep()

    assert clock.sleeps == [4.0, 30, 4.0]
    assert len(channel.platform.log("typing")) == 1


async def test_a_call_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typing_module, "CALL_S", 0.01)
    channel = typist()
    channel.platform.fail("typing", slow(asyncio.Event()))
    async with shown(channel) as clock:
        await clock.until_asleep()
        clock.advance(BEAT_S)
        await calls(channel, 2)


async def test_a_call_on_its_way_does_not_hold_up_the_end() -> None:
    channel = typist()
    channel.platform.fail("typing", slow(asyncio.Event()))
    async with asyncio.timeout(5), shown(channel):
        await calls(channel, 1)


async def test_a_turn_that_breaks_ends_the_sign() -> None:
    channel = typist()
    with pytest.raises(ExceptionGroup) as broken:
        async with shown(channel):
            raise ValueError("bug")

    assert broken.group_contains(ValueError)


async def test_a_channel_without_the_ability_is_left_alone() -> None:
    channel = FakeChannel("x", can=())
    async with shown(channel) as clock:
        pass

    assert (clock.sleeps, channel.platform.log()) == ([], [])
