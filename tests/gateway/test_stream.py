"""Streaming, splitting and typing as the gateway uses them, on a real ledger."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fermix.agent.model import TextDelta, ToolCallDelta
from fermix.agent.turn import Completed, Failed, ReplyPort, Turn, TurnOutcome
from fermix.channels.catalog import stream_tiers
from fermix.config.load import build
from fermix.gateway import gateway as gateway_module
from fermix.gateway.channel import StreamTier
from fermix.gateway.delivery import MARK
from fermix.gateway.stream import Items, resolve_tier
from fermix.home import Home
from fermix.message import Text
from fermix.setup.sections import SECTIONS
from fermix.trust import Trust
from tests.fakes.channel import Ability, FakeAgent, FakeChannel, completed, message
from tests.fakes.platform import AWAY, LOST_ANSWER, Fault, Platform
from tests.gateway.conftest import Install
from tests.requirements import covers

ANSWER = "This is an answer that is long enough for a draft. And it goes on. "


class Writer:
    """An agent's turn that streams its answer and waits, when it is told to, before it ends."""

    def __init__(self, outcome: TurnOutcome | None = None, *, waits: bool = False) -> None:
        self._outcome = outcome or completed(ANSWER * 3)
        self.streamed = asyncio.Event()
        self.go = asyncio.Event()
        if not waits:
            self.go.set()

    async def __call__(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        for _ in range(3):
            port.stream(TextDelta(ANSWER))
            for _ in range(20):
                await asyncio.sleep(0)
        self.streamed.set()
        await self.go.wait()
        return self._outcome


def fake(install: Install, *can: Ability) -> FakeChannel:
    return FakeChannel("chat", platform=install.platform, can=can)


async def test_the_draft_becomes_the_answer_and_is_in_the_ledger(install: Install) -> None:
    channel = fake(install, "drafts")
    writer = Writer(waits=True)
    async with install.start(FakeAgent(writer), channel) as at:
        await at.say("hi")
        await install.platform.until(lambda: bool(install.platform.shown()))
        writer.go.set()

        assert await at.settled(1) == [("m1", "completed")]
        assert at.agent.committed == ["m1"]
    (shown,) = install.platform.shown()

    assert (shown.kind, shown.text) == ("draft", (ANSWER * 3).rstrip())
    assert install.rows("SELECT state, platform_id, settles FROM outbox") == [("sent", shown.id, "answered")]
    assert install.rows("SELECT draft FROM inbox") == [(None,)]


async def test_a_stop_takes_the_draft_back(install: Install) -> None:
    writer = Writer(waits=True)
    async with install.start(FakeAgent(writer), fake(install, "drafts")) as at:
        await at.say("hi")
        await install.platform.until(lambda: install.platform.texts() == [(ANSWER * 3).rstrip()])
        await at.say("/stop", id="m2")
        await at.settled(2)

    assert [one.answers for one in install.platform.shown()] == ["m2"]


async def test_a_failed_turn_leaves_its_sentence_and_no_draft(install: Install) -> None:
    agent = FakeAgent(Writer(Failed("The provider is away.", "http 503")))
    async with install.start(agent, fake(install, "drafts")) as at:
        await at.say("hi")

        assert await at.settled(1) == [("m1", "failed")]
    assert install.platform.texts() == ["The provider is away."]


async def test_what_a_turn_has_sent_is_not_said_again_by_its_draft(install: Install) -> None:
    """DLV-09."""

    async def says_it_twice(turn: Turn, port: ReplyPort) -> Completed:
        port.stream(TextDelta(ANSWER))
        async with asyncio.timeout(5):
            while not install.platform.texts():
                await asyncio.sleep(0)
        await port.send(Text(ANSWER))
        return completed(ANSWER)

    async with install.start(FakeAgent(says_it_twice), fake(install, "drafts")) as at:
        await at.say("hi")
        await at.settled(1)

    assert install.platform.texts() == [ANSWER]


async def test_a_draft_that_cannot_be_sealed_is_replaced(install: Install) -> None:
    writer = Writer(completed("Another answer than the one that was streamed."), waits=True)
    install.platform.fail("edit", *[AWAY] * 20)
    async with install.start(FakeAgent(writer), fake(install, "drafts")) as at:
        await at.say("hi")
        await install.platform.until(lambda: bool(install.platform.shown()))
        writer.go.set()

        assert await at.settled(1) == [("m1", "completed")]
    assert install.platform.texts() == ["Another answer than the one that was streamed."]


async def test_an_answer_beside_a_draft_that_may_show_it_says_so(install: Install) -> None:
    """DLV-07: the seal may have landed, and the draft cannot be removed."""
    other = "Another answer than the one that was streamed."
    writer = Writer(completed(other), waits=True)
    async with install.start(FakeAgent(writer), fake(install, "drafts")) as at:
        await at.say("hi")
        await install.platform.until(lambda: install.platform.texts() == [(ANSWER * 3).rstrip()])
        install.platform.fail("edit", LOST_ANSWER, AWAY, AWAY)
        install.platform.fail("discard", AWAY, AWAY, AWAY)
        writer.go.set()

        assert await at.settled(1) == [("m1", "completed")]
    assert install.platform.texts() == [other, f"{MARK}{other}"]


async def test_a_shutdown_leaves_the_draft_to_the_next_start(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_module, "DRAIN_S", 0.05)
    writer = Writer(waits=True)
    async with install.start(FakeAgent(writer), fake(install, "drafts")) as at:
        await at.say("hi")
        await install.platform.until(lambda: bool(install.platform.shown()))
    assert len(install.platform.shown()) == 1
    async with install.start(FakeAgent(), fake(install, "drafts")) as at:
        assert await at.settled(1) == [("m1", "completed")]

    assert install.platform.texts() == ["HI"]


async def test_a_start_tidies_up_all_bubbles_of_a_turn_that_runs_again(install: Install) -> None:
    channel, asked = fake(install, "drafts"), message("hi", channel="chat", sender="1")
    bubbles = [await channel.open(asked, ANSWER + str(number), "k") for number in range(3)]
    async with install.ledger() as ledger:
        entry = await ledger.accept(asked, Trust.OPERATOR)
        assert entry is not None
        ledger.draft(entry, "\n".join(bubbles))
    async with install.start(FakeAgent(), channel) as at:
        await at.settled(1)

    assert install.platform.texts() == ["HI"]


async def test_a_start_keeps_the_bubbles_that_begin_a_written_answer(install: Install) -> None:
    channel, asked = fake(install, "drafts"), message("hi", channel="chat", sender="1")
    full, live = [await channel.open(asked, text, "k") for text in ("The beginning of it.", "And the")]
    async with install.ledger() as ledger:
        entry = await ledger.accept(asked, Trust.OPERATOR)
        assert entry is not None
        ledger.draft(entry, f"{live}\n{full}")
        await ledger.outgoing(
            entry, ["And the end."], settles="answered", model="m", answer="The beginning …", on_its_way=False
        )
    async with install.start(FakeAgent(), channel) as at:
        await at.settled(1)

    assert install.platform.texts() == ["The beginning of it.", "And the end."]


async def test_blocks_are_messages_that_no_start_repeats(install: Install) -> None:
    async with install.start(FakeAgent(Writer(waits=False)), fake(install)) as at:
        at.gateway.use(streaming={"chat": "block"}, album_quiet_s={})
        await at.say("hi")

        assert await at.settled(1) == [("m1", "completed")]
    async with install.start(FakeAgent(), fake(install)):
        pass

    assert "".join("".join(install.platform.texts()).split()) == "".join((ANSWER * 3).split())
    assert {row[0] for row in install.rows("SELECT state FROM outbox")} == {"sent"}


@covers("stream.spec.once")
async def test_how_a_turn_streams_is_decided_once(install: Install) -> None:
    """Ingress and trust, step 6: by the channel's ability and by config; a change counts from the next turn on."""
    writer = Writer(waits=True)
    async with install.start(FakeAgent(writer), fake(install, "drafts")) as at:
        await at.say("hi")
        await install.platform.until(lambda: bool(install.platform.shown()))
        at.gateway.use(streaming={"chat": "off"}, album_quiet_s={})
        writer.go.set()
        await at.say("again", id="m2")
        await at.settled(2)

    assert [(one.answers, one.kind) for one in install.platform.shown()] == [("m1", "draft"), ("m2", "message")]


@pytest.mark.parametrize(
    ("can", "stated", "tier"),
    [
        ((), None, "off"),
        ((), "draft", "off"),
        ((), "block", "block"),
        ((), "off", "off"),
        (("drafts",), None, "draft"),
        (("drafts",), "draft", "draft"),
        (("drafts",), "block", "block"),
        (("drafts",), "off", "off"),
    ],
)
def test_streaming_needs_the_ability_and_obeys_config(
    can: tuple[Ability, ...], stated: StreamTier | None, tier: StreamTier
) -> None:
    assert resolve_tier(FakeChannel("x", can=can), stated) == tier


def test_config_says_how_a_channel_streams() -> None:
    text = '[fermix_channels.telegram]\nstreaming = "block"\n[fermix_channels.slack]\nenabled = true\n'
    config = build(text, Home(Path("/h")), {}, SECTIONS)

    assert stream_tiers(config) == {"telegram": "block"}


@covers("typing.when-able")
async def test_typing_is_shown_while_the_turn_runs(install: Install) -> None:
    writer = Writer(waits=True)
    async with install.start(FakeAgent(writer), fake(install, "typing")) as at:
        install.platform.fail("typing", AWAY)
        await at.say("hi")
        await asyncio.wait_for(writer.streamed.wait(), 5)
        await install.platform.until(lambda: len(install.platform.log("typing")) > 1)
        writer.go.set()

        assert await at.settled(1) == [("m1", "completed")]
    assert {(entry.chat, entry.answers) for entry in install.platform.log("typing")} == {("chat", "m1")}


async def test_a_long_answer_comes_in_parts_in_order(install: Install) -> None:
    install.platform.text_limit = 100
    async with install.start(FakeAgent(Writer()), fake(install)) as at:
        await at.say("hi")
        await at.settled(1)

    assert "".join("".join(install.platform.texts()).split()) == "".join((ANSWER * 3).split())
    assert len(install.platform.texts()) > 2
    assert install.platform.log("refused") == []


async def test_the_mark_of_a_possible_duplicate_still_fits(install: Install) -> None:
    """TGM-10: markers are part of the measured text."""
    install.platform.text_limit = 100
    install.platform.fail("send", LOST_ANSWER)
    async with install.start(FakeAgent(Writer(completed("x" * 100))), fake(install)) as at:
        await at.say("hi")

        assert await at.settled(1) == [("m1", "completed")]
    first, again, rest = install.platform.texts()

    assert again == MARK + first
    assert first + rest == "x" * 100


async def test_a_platform_that_is_the_local_screen_sees_every_delta(install: Install) -> None:
    channel = FakeChannel("chat", platform=Platform(), can=("live",))
    async with install.start(FakeAgent(Writer()), channel) as at:
        await at.say("hi")
        await at.settled(1)

    assert channel.deltas == [TextDelta(ANSWER)] * 3


@pytest.fixture(params=["lookup", "idempotent", "neither"])
def finds(request: pytest.FixtureRequest, install: Install) -> FakeChannel:
    """A channel with drafts, by how it can find one again whose opening got no answer."""
    install.platform.idempotent = request.param == "idempotent"
    return fake(install, "drafts", *(("lookup",) if request.param == "lookup" else ()))


def can_find(channel: FakeChannel) -> bool:
    return channel.abilities.lookup is not None or channel.abilities.idempotent


async def test_a_draft_whose_opening_got_no_answer_becomes_the_answer_or_puts_it_in_doubt(
    install: Install, finds: FakeChannel
) -> None:
    """DLV-02 for drafts: found by its key where the platform can, else the answer says that it may come twice."""
    install.platform.fail("open", LOST_ANSWER)
    async with install.start(FakeAgent(Writer()), finds) as at:
        await at.say("hi")
        assert await at.settled(1) == [("m1", "completed")]

    whole = (ANSWER * 3).rstrip()
    texts = install.platform.texts()
    assert texts == ([whole] if can_find(finds) else [texts[0], f"{MARK}{whole}"])
    assert install.rows("SELECT draft FROM inbox") == [(None,)]


async def test_a_draft_that_surely_never_landed_is_opened_again(install: Install) -> None:
    """The connection broke on the way there: a look into the chat says so, and nothing is in doubt."""
    install.platform.fail("open", Fault("the connection broke", landed=True, lost=True))
    async with install.start(FakeAgent(Writer()), fake(install, "drafts", "lookup")) as at:
        await at.say("hi")
        await at.settled(1)

    assert install.platform.texts() == [(ANSWER * 3).rstrip()]


@pytest.mark.parametrize("ends", ["stop", "failure", "restart"])
async def test_no_draft_whose_opening_got_no_answer_is_left_behind(
    install: Install, finds: FakeChannel, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    monkeypatch.setattr(gateway_module, "DRAIN_S", 0.05)
    gate = asyncio.Event()
    install.platform.fail("open", Fault("the connection broke", landed=True, gate=gate))
    writer = Writer(Failed("The provider is away.", "http 503"), waits=ends != "failure")
    async with install.start(FakeAgent(writer), finds) as at:
        await at.say("hi")
        await install.platform.until(lambda: install.platform.calls["open"] > 0)
        if ends == "stop":
            await at.say("/stop", id="m2")
        if ends != "restart":
            gate.set()
            await at.settled(2 if ends == "stop" else 1)
    if ends == "restart":  # the platform takes it after all; who asked is gone
        key = install.rows("SELECT substr(draft, 2) FROM inbox")[0][0]
        await finds.open(message("hi", id="m1", channel="chat", sender="1"), ANSWER, key)
        async with install.start(FakeAgent(), finds) as at:
            await at.settled(1)

    drafts = [one for one in install.platform.shown() if one.kind == "draft"]
    assert len(drafts) == (0 if can_find(finds) else 1)
    if ends == "restart":
        assert install.platform.texts()[-1] == ("HI" if can_find(finds) else f"{MARK}HI")


@pytest.mark.timeout(20)
def test_a_flood_of_deltas_costs_each_of_them_once() -> None:
    """A server may send an answer letter by letter; were all of it copied for each, nothing else would run."""
    items = Items()
    for _ in range(400_000):
        assert items.add(TextDelta("word"))
    items.add(ToolCallDelta("look"))
    items.add(TextDelta(" \n"))
    items.add(TextDelta(" more"))
    assert (len(items.text), items.is_last) == (1_600_000, False)
    items.go_on()
    assert (items.text, items.is_last) == ("more", True)
