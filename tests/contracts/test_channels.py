"""One suite for every channel: what the gateway may rely on, whatever the platform."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pytest

from fermix.agent.model import ReasoningDelta, TextDelta, ToolCallDelta
from fermix.channels.local import LocalChannel
from fermix.errors import ChannelUnavailable
from fermix.gateway.channel import Channel
from fermix.message import ApprovalPrompt, Attachment, Message, Text
from tests.fakes.channel import EVERY_ABILITY, FakeChannel, message, utf16_units
from tests.fakes.clock import ManualClock
from tests.fakes.platform import LOST_ANSWER, Platform

SAMPLES = ("a", "two words", "Grüße, 世界", "\U0001f600\U0001f469\u200d\U0001f4bb", "**bold**\n\n```py\nx = 1\n```")


class Rig(Protocol):
    """A channel with what stands behind it."""

    @property
    def channel(self) -> Channel: ...

    def message(self) -> Message: ...

    def seen(self) -> list[str]:
        """What a person at the other end has before them."""
        ...

    def hold(self, reference: str, body: bytes) -> None:
        """Have the platform hold a file."""
        ...

    def next_edit(self) -> None:
        """Let the time between two edits pass."""
        ...


class LocalRig:
    """A local client that shows each reply it is told of."""

    def __init__(self) -> None:
        self.channel = LocalChannel(self)
        self._seen: list[str] = []

    def tell(self, session: str, event: str, params: Mapping[str, object], *, droppable: bool = False) -> None:
        if event == "reply":
            self._seen.append(str(params["text"]))

    def message(self) -> Message:
        return message("hi", channel="cli")

    def seen(self) -> list[str]:
        return self._seen

    def hold(self, reference: str, body: bytes) -> None:
        raise AssertionError("a local client holds no files")

    def next_edit(self) -> None:
        raise AssertionError("a local client has no drafts")


class FakeRig:
    """A fake channel; `shared` makes it speak in a thread of a shared chat."""

    def __init__(self, channel: FakeChannel, clock: ManualClock, *, shared: bool = False) -> None:
        self.channel = channel
        self._clock = clock
        self._shared = shared

    def message(self) -> Message:
        thread = "7" if self._shared else "root"
        return message("hi", channel=self.channel.name, sender="1", thread=thread, private=not self._shared)

    def seen(self) -> list[str]:
        return self.channel.platform.texts("chat", self.message().thread)

    def hold(self, reference: str, body: bytes) -> None:
        self.channel.platform.files[reference] = body

    def next_edit(self) -> None:
        self._clock.advance(self.channel.edit_interval_s)


def _bare() -> Rig:
    return FakeRig(FakeChannel("bare", can=()), ManualClock())


def _everything() -> Rig:
    clock = ManualClock()
    platform = Platform(text_limit=4096, unit=utf16_units, clock=clock)
    return FakeRig(FakeChannel("everything", platform=platform, can=EVERY_ABILITY), clock, shared=True)


def _idempotent() -> Rig:
    clock = ManualClock()
    platform = Platform(text_limit=2000, idempotent=True, clock=clock)
    return FakeRig(FakeChannel("idempotent", platform=platform, can=("drafts", "buttons")), clock)


@dataclass(frozen=True)
class Kind:
    name: str
    open: Callable[[], Rig]


KINDS = (Kind("local", LocalRig), Kind("bare", _bare), Kind("everything", _everything), Kind("idempotent", _idempotent))


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def rig(request: pytest.FixtureRequest) -> Rig:
    return request.param.open()


def kinds_that(has: Callable[[Channel], object]) -> pytest.MarkDecorator:
    """Run a test with each channel that has this ability."""
    able = [kind for kind in KINDS if has(kind.open().channel)]
    return pytest.mark.parametrize("rig", [kind.open() for kind in able], ids=[kind.name for kind in able])


def test_a_channel_carries_the_name_that_its_messages_carry(rig: Rig) -> None:
    assert rig.channel.name == rig.message().channel
    assert rig.channel.name.strip().lower() == rig.channel.name != ""


def test_longer_text_never_measures_less(rig: Rig) -> None:
    """The splitter searches by halves and relies on it."""
    for text in SAMPLES:
        lengths = [rig.channel.measure(text[:end]) for end in range(len(text) + 1)]

        assert lengths == sorted(lengths)
        assert lengths[0] == 0 < lengths[-1]


@pytest.mark.parametrize("text", SAMPLES)
async def test_a_text_arrives_as_it_was_sent(rig: Rig, text: str) -> None:
    id = await rig.channel.send(rig.message(), Text(text, "fake/model"), "key-1")

    assert rig.seen() == [text]
    assert id.strip() != ""


@kinds_that(lambda channel: channel.text_limit is not None)
async def test_the_longest_text_fits_and_one_more_does_not(rig: Rig) -> None:
    """DSC-07, TGM-06: the limit is the platform's own, in the platform's own unit."""
    limit = rig.channel.text_limit or 0
    longest = "\U0001f600" * (limit // rig.channel.measure("\U0001f600"))
    await rig.channel.send(rig.message(), Text(longest), "key-1")
    with pytest.raises(ChannelUnavailable) as refused:
        await rig.channel.send(rig.message(), Text(longest + "x"), "key-2")

    assert rig.seen() == [longest]
    assert not refused.value.landed


@kinds_that(lambda channel: channel.abilities.idempotent)
async def test_the_same_key_is_shown_once(rig: Rig) -> None:
    first = await rig.channel.send(rig.message(), Text("once"), "key-1")
    again = await rig.channel.send(rig.message(), Text("once"), "key-1")
    await rig.channel.send(rig.message(), Text("once"), "key-2")

    assert rig.seen() == ["once", "once"]
    assert first == again


@kinds_that(lambda channel: channel.abilities.lookup)
async def test_a_send_can_be_looked_up_by_its_key(rig: Rig) -> None:
    lookup = rig.channel.abilities.lookup
    assert lookup is not None
    id = await rig.channel.send(rig.message(), Text("here"), "key-1")

    assert await lookup.find(rig.message(), "key-1") == id
    assert await lookup.find(rig.message(), "key-2") is None


@kinds_that(lambda channel: channel.abilities.drafts)
async def test_a_draft_grows_in_its_place_and_leaves_nothing_when_discarded(rig: Rig) -> None:
    drafts = rig.channel.abilities.drafts
    assert drafts is not None
    kept = await drafts.open(rig.message(), "Hel", "k1")
    rig.next_edit()
    await drafts.edit(rig.message(), kept, "Hello")
    gone = await drafts.open(rig.message(), "Oops", "k2")
    await drafts.discard(rig.message(), gone)

    assert rig.seen() == ["Hello"]
    assert drafts.edit_interval_s > 0


@kinds_that(lambda channel: channel.abilities.buttons)
async def test_a_prompt_shows_its_text_and_never_its_token(rig: Rig) -> None:
    """Ingress and trust: in a shared chat the code is withheld from the text; the button carries the id."""
    buttons = rig.channel.abilities.buttons
    assert buttons is not None
    await buttons.ask(rig.message(), ApprovalPrompt("prompt-1", "May I read /srv?", "ABCD2345"))

    assert len(rig.seen()) == 1
    assert "May I read /srv?" in rig.seen()[0]
    assert "ABCD2345" not in rig.seen()[0]


@kinds_that(lambda channel: channel.abilities.downloads)
async def test_a_file_comes_in_pieces_that_make_the_whole(rig: Rig) -> None:
    downloads = rig.channel.abilities.downloads
    assert downloads is not None
    body = bytes(range(256)) * 100
    rig.hold("file-1", body)
    async with downloads.download(Attachment("file", "file-1", "application/octet-stream")) as pieces:
        found = [piece async for piece in pieces]

    assert b"".join(found) == body
    assert len(found) > 1


@kinds_that(lambda channel: channel.abilities.typing or channel.abilities.reactions)
async def test_signs_of_life_leave_no_message(rig: Rig) -> None:
    abilities = rig.channel.abilities
    if abilities.typing is not None:
        await abilities.typing.show_typing(rig.message())
    if abilities.reactions is not None:
        await abilities.reactions.react(rig.message(), "\U0001f44d")

    assert rig.seen() == []


@kinds_that(lambda channel: channel.abilities.live)
def test_progress_is_shown_without_a_wait_and_is_no_message(rig: Rig) -> None:
    live = rig.channel.abilities.live
    assert live is not None
    for delta in (TextDelta("Hel"), ReasoningDelta("hm"), ToolCallDelta("shell")):
        live.show(rig.message(), delta)

    assert rig.seen() == []


def test_the_last_proof_of_life_is_not_in_the_future(rig: Rig) -> None:
    assert rig.channel.alive_at is None or rig.channel.alive_at <= time.monotonic()


async def test_a_send_whose_answer_is_lost_says_that_it_may_have_landed() -> None:
    """DLV-07: an unknown outcome is a state of its own."""
    channel = FakeChannel("remote")
    channel.platform.fail("send", LOST_ANSWER)
    with pytest.raises(ChannelUnavailable) as lost:
        await channel.send(message("hi", channel="remote"), Text("hello"), "key-1")

    assert lost.value.landed
    assert channel.platform.texts() == ["hello"]
