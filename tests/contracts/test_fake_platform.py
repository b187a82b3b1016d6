"""The judge must judge: what the platform in miniature refuses, offers again and remembers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fermix.errors import ChannelUnavailable, Unavailable
from fermix.gateway.channel import Channel
from fermix.message import Attachment, Message, Text
from tests.fakes.channel import FakeChannel, message
from tests.fakes.clock import ManualClock
from tests.fakes.platform import AWAY, Entry, Platform, rate_limited, slow


async def test_edits_faster_than_the_platform_allows_are_refused_with_the_time_left() -> None:
    clock = ManualClock()
    channel = FakeChannel("x", platform=Platform(clock=clock), can=("drafts",))
    draft = await channel.open(message("hi"), "a", "k")
    clock.advance(0.25)
    with pytest.raises(ChannelUnavailable) as refused:
        await channel.edit(message("hi"), draft, "ab")

    assert refused.value.retry_after_s == 0.75
    assert [entry.text for entry in channel.platform.log("refused")] == ["edit: too many requests"]


async def test_empty_texts_and_unknown_drafts_are_refused() -> None:
    channel = FakeChannel("x", can=("drafts",))
    for call in (channel.send(message("hi"), Text(" "), "k"), channel.edit(message("hi"), "p9", "text")):
        with pytest.raises(ChannelUnavailable):
            await call

    assert channel.platform.shown() == []


async def test_faults_come_in_their_order_and_then_it_works() -> None:
    channel = FakeChannel("x")
    gate = asyncio.Event()
    channel.platform.fail("send", rate_limited(34), AWAY, slow(gate))
    for retry_after_s in (34, None):
        with pytest.raises(ChannelUnavailable) as failed:
            await channel.send(message("hi"), Text("one"), "k")
        assert failed.value.retry_after_s == retry_after_s
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(channel.send(message("hi"), Text("two"), "k"))
        await channel.platform.until(lambda: channel.platform.calls["send"] == 3)
        assert not sending.done()
        gate.set()

    assert channel.platform.texts() == ["two"]


async def test_a_polled_message_is_offered_until_it_is_taken(tmp_path: Path) -> None:
    """The log outlives the process: another one polls what the first did not confirm."""
    said = message("hi", id="u1", chat="c", channel="x", attachments=(Attachment("image", "f", "image/png", 3),))
    Platform(path=tmp_path / "log").say(said)
    taken: list[Message] = []

    async def breaks(update: Message, channel: Channel) -> None:
        raise Unavailable("the disk is full")

    async def takes(update: Message, channel: Channel) -> None:
        taken.append(update)

    with pytest.raises(Unavailable):
        await FakeChannel("x", platform=Platform(path=tmp_path / "log")).poll(breaks)
    later = FakeChannel("x", platform=Platform(path=tmp_path / "log"))
    async with asyncio.TaskGroup() as group:
        polling = group.create_task(later.poll(takes))
        async with asyncio.timeout(5):
            while later.platform.unconfirmed():
                await asyncio.sleep(0)
        polling.cancel()

    assert taken == [said]
    assert Platform(path=tmp_path / "log").unconfirmed() == []


async def test_a_webhook_is_posted_again_until_it_is_acknowledged() -> None:
    tries: list[str] = []

    async def breaks_twice(update: Message, channel: Channel) -> None:
        tries.append(update.id)
        if len(tries) < 3:
            raise Unavailable("the disk is full")

    assert await FakeChannel("x").push(message("hi", channel="x"), breaks_twice) == [503, 503, 200]


async def test_what_one_process_sent_another_sees(tmp_path: Path) -> None:
    first, second = Platform(path=tmp_path / "log"), Platform(path=tmp_path / "log")
    await first.call(Entry("send", "c", text="one", key="k"))

    assert second.texts("c") == ["one"]
    assert second.find("c", "k") == first.shown()[0].id
