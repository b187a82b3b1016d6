"""Whatever breaks around a turn: the message gets its last word once, the lane goes on, the daemon stays."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from fermix.agent.model import TextDelta
from fermix.agent.turn import Failed, ReplyPort, Turn, TurnOutcome
from fermix.errors import NeedsOperator
from fermix.gateway.answer import BROKEN, Answer
from fermix.gateway.blocks import BlockStream
from fermix.gateway.delivery import MARK
from fermix.gateway.drafts import DraftStream
from fermix.gateway.ledger import UNKNOWN_DRAFT, Ledger
from fermix.gateway.replies import Replier, past_failing
from fermix.message import Message
from fermix.trust import Trust
from tests.fakes.channel import Ability, FakeAgent, FakeChannel, completed, message
from tests.fakes.platform import Verb
from tests.gateway.conftest import Install, Open

ANSWER = "This is an answer that is long enough for a draft. "
BUGS = (RuntimeError("a bug"), sqlite3.OperationalError("disk I/O error"))
NAMES = [type(bug).__name__ for bug in BUGS]


def raising(error: Exception) -> Callable[..., Coroutine[None, None, None]]:
    async def broken(*_: object, **__: object) -> None:
        raise error

    return broken


async def writes(turn: Turn, port: ReplyPort) -> TurnOutcome:
    """Stream an answer slowly enough for every stream to show it."""
    for _ in range(3):
        port.stream(TextDelta(ANSWER))
        for _ in range(20):
            await asyncio.sleep(0)
    return completed((ANSWER * 3).strip())


async def fails(turn: Turn, port: ReplyPort) -> TurnOutcome:
    return Failed("The provider is away.", "http 503")


class Faulty(FakeChannel):
    """An adapter with a bug in one of its calls."""

    def __init__(self, install: Install, verb: Verb, *can: Ability) -> None:
        super().__init__("chat", platform=install.platform, can=can)
        self._bad = verb

    async def _call(self, verb: Verb, message: Message, *, id: str = "", text: str = "", key: str = "") -> str:
        if verb == self._bad:
            raise RuntimeError("a bug of the adapter")
        return await super()._call(verb, message, id=id, text=text, key=key)


async def goes_on(life: Open) -> None:
    """The lane and the gateway still answer."""
    life.agent.script = None
    await life.say("next", "m2")
    assert await life.settled(1) == [("m2", "completed")]


@pytest.mark.parametrize("bug", BUGS, ids=NAMES)
async def test_a_history_that_breaks_after_the_answer_leaves_the_message_answered(install: Install, bug: Exception):
    async with install.start() as life:
        life.agent.commit = raising(bug)
        await life.say("hi")
        assert await life.settled(1) == [("m1", "completed")]
        await goes_on(life)

    assert install.platform.texts() == ["HI", "NEXT"]
    assert install.outcomes() == {"m1": "answered", "m2": "answered"}


@pytest.mark.parametrize("bug", BUGS, ids=NAMES)
async def test_a_history_that_breaks_after_a_failure_leaves_the_message_failed(install: Install, bug: Exception):
    async with install.start(FakeAgent(fails)) as life:
        life.agent.abandon = raising(bug)
        await life.say("hi")
        assert await life.settled(1) == [("m1", "failed")]
        await goes_on(life)

    assert install.platform.texts() == ["The provider is away.", "NEXT"]
    assert install.outcomes() == {"m1": "failed", "m2": "answered"}


async def test_a_history_that_breaks_after_a_stop_leaves_the_message_stopped(install: Install) -> None:
    async def waits(turn: Turn, port: ReplyPort) -> TurnOutcome:
        await asyncio.Event().wait()
        return completed("never")

    async with install.start(FakeAgent(waits)) as life:
        life.agent.abandon = raising(RuntimeError("a bug"))
        await life.say("hi")
        while not life.agent.started:
            await asyncio.sleep(0)
        await life.say("/stop", "stop")
        assert dict(await life.settled(2)) == {"m1": "cancelled", "stop": "handled"}
        await goes_on(life)

    assert install.outcomes()["m1"] == "stopped"


@pytest.mark.parametrize(("stream", "ability"), [(DraftStream, "drafts"), (BlockStream, "typing")])
async def test_a_stream_that_breaks_at_its_end_is_answered_with_one_sentence(
    install: Install, monkeypatch: pytest.MonkeyPatch, stream: type, ability: Ability
) -> None:
    monkeypatch.setattr(stream, "finish", raising(ValueError("one character is longer than the limit")))
    channel = FakeChannel("chat", platform=install.platform, can=(ability,))
    async with install.start(FakeAgent(writes), channel) as life:
        life.gateway.use(streaming={"chat": "draft" if ability == "drafts" else "block"}, album_quiet_s={})
        await life.say("hi")
        assert await life.settled(1) == [("m1", "failed")]
        monkeypatch.undo()
        await goes_on(life)

    assert install.platform.texts()[-2:] == [BROKEN, "NEXT"]
    assert [one.kind for one in install.platform.shown()].count("draft") == 0
    assert install.outcomes() == {"m1": "failed", "m2": "answered"}


@pytest.mark.parametrize("step", ["seal", "sweep", "_step"])
async def test_a_draft_that_breaks_costs_the_answer_nothing(
    install: Install, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setattr(DraftStream, step, raising(RuntimeError("a bug")))
    channel = FakeChannel("chat", platform=install.platform, can=("drafts",))
    async with install.start(FakeAgent(writes), channel) as life:
        await life.say("hi")
        assert await life.settled(1) == [("m1", "completed")]
        monkeypatch.undo()
        await goes_on(life)

    assert install.platform.texts() == [(ANSWER * 3).strip(), "NEXT"]
    assert install.outcomes() == {"m1": "answered", "m2": "answered"}


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("open", [f"{MARK}{ANSWER * 3}".strip()]),
        ("edit", [(ANSWER * 3).strip()]),
        ("typing", [(ANSWER * 3).strip()]),
    ],
)
async def test_an_adapter_with_a_bug_ends_no_turn(install: Install, verb: Verb, said: list[str]) -> None:
    """What a broken call left in the chat is unknown, and said so."""
    async with install.start(FakeAgent(writes), Faulty(install, verb, "drafts", "typing")) as life:
        await life.say("hi")
        assert await life.settled(1) == [("m1", "completed")]
        await goes_on(life)

    assert install.platform.texts() == [*said, "NEXT"]


async def test_a_channel_whose_typing_cannot_even_be_asked_for_gets_one_sentence(install: Install) -> None:
    """The surroundings of a turn break before it begins."""
    channel = FakeChannel("chat", platform=install.platform, can=())
    async with install.start(channel=channel) as life:
        whole, channel.abilities = channel.abilities, None  # the bug
        await life.say("hi")
        assert await life.settled(1) == [("m1", "failed")]
        channel.abilities = whole
        await goes_on(life)

    assert life.agent.started == ["m2"]
    assert install.outcomes()["m1"] == "failed"


@pytest.mark.parametrize("bug", BUGS, ids=NAMES)
async def test_a_ledger_that_breaks_keeps_the_answer_for_the_next_start(
    install: Install, monkeypatch: pytest.MonkeyPatch, bug: Exception
) -> None:
    """What cannot be written down is not sent, whatever the reason."""
    async with install.start() as life:
        with monkeypatch.context() as patch:
            patch.setattr(life.ledger, "outgoing", raising(bug))
            await life.say("hi")
            assert await life.settled(1) == [("m1", "failed")]
        await goes_on(life)
    assert install.outcomes() == {"m1": None, "m2": "answered"}
    async with install.start() as life:
        assert await life.settled(1) == [("m1", "completed")]

    assert install.platform.texts() == ["NEXT", "HI"]


async def test_a_ledger_that_breaks_between_the_parts_of_a_reply_gives_it_up(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install.platform.text_limit = 60
    async with install.start(FakeAgent(writes)) as life:
        monkeypatch.setattr(life.ledger, "sending", raising(sqlite3.OperationalError("disk I/O error")))
        await life.say("hi")
        assert await life.settled(1) == [("m1", "failed")]
        await goes_on(life)

    states = install.rows("SELECT state FROM outbox WHERE entry_id = 1 ORDER BY id")
    assert states == [("sent",)] + [("failed",)] * (len(states) - 1)
    assert len(states) > 1


@pytest.mark.parametrize("text", ["/whoami", "/new", "/stop"])
async def test_a_command_whose_reply_cannot_be_written_down_is_excused_once_and_never_run_again(
    install: Install, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Issue 3, the ledger: answered or honestly excused exactly once; dispatched commands are never run again."""
    async with install.start() as life:
        with monkeypatch.context() as patch:
            patch.setattr(life.ledger, "outgoing", raising(NeedsOperator("the disk is full", advice="free some")))
            await life.say(text)
            assert await life.settled(1) == [("m1", "failed")]
        await goes_on(life)
    assert install.outcomes() == {"m1": None, "m2": "answered"}
    async with install.start() as life:
        await life.settled(1)
        assert life.conversations.cleared == []
    async with install.start() as life:
        await goes_on(life)

    (said,) = [one.text for one in install.platform.shown() if one.answers == "m1"]
    assert said.startswith("I was restarted before I could answer")
    assert install.outcomes()["m1"] == "excused"


async def test_a_cancelled_step_stays_cancelled() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await past_failing(cancelled(), "a step")


async def left(ledger: Ledger, *, effect: bool = False) -> None:
    entry = await ledger.accept(message("hi", channel="chat", sender="1"), Trust.OPERATOR)
    assert entry is not None
    if effect:
        await ledger.effect(entry, "shell")
    else:
        (row,) = await ledger.outgoing(entry, ["HI"], settles="answered", model="fake/m", answer="HI")
        ledger.sent(row, "p1")


@pytest.mark.parametrize("bug", BUGS, ids=NAMES)
@pytest.mark.parametrize("effect", [False, True], ids=["delivered", "excused"])
async def test_a_history_that_breaks_at_the_start_settles_all_the_same(install: Install, bug: Exception, effect: bool):
    agent = FakeAgent()
    agent.restore = agent.abandon = raising(bug)
    async with install.ledger() as ledger:
        await left(ledger, effect=effect)
    async with install.start(agent) as life:
        await life.settled(1)
        await goes_on(life)

    assert install.outcomes() == {"m1": "excused" if effect else "answered", "m2": "answered"}


async def test_a_recovery_that_breaks_is_answered_with_one_sentence(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr("fermix.gateway.recovery.excuse", broken)
    async with install.ledger() as ledger:
        await left(ledger, effect=True)
    async with install.start() as life:
        assert await life.settled(1) == [("m1", "failed")]
        await goes_on(life)

    assert install.platform.texts() == [BROKEN, "NEXT"]
    assert install.outcomes() == {"m1": "failed", "m2": "answered"}


async def test_after_a_draft_that_nobody_can_remove_the_answer_is_not_shown_in_another_one(install: Install) -> None:
    channel = FakeChannel("chat", platform=install.platform, can=("drafts",))
    async with install.ledger() as ledger:
        entry = await ledger.accept(message("hi", channel="chat", sender="1"), Trust.OPERATOR)
        assert entry is not None
        await ledger.drafting(entry, UNKNOWN_DRAFT)
        await channel.open(message("hi", channel="chat"), "half an ans", "k")
    async with install.start(FakeAgent(writes), channel) as life:
        await life.settled(1)

    assert install.platform.calls["open"] == 1
    assert install.platform.texts() == ["half an ans", f"{MARK}{ANSWER * 3}".strip()]


async def test_an_adapter_that_breaks_before_there_is_a_place_costs_one_message(install: Install) -> None:
    """The platform is told "received", since it is: the next start takes the message up."""

    class Limitless(FakeChannel):
        broken = True

        @property
        def text_limit(self) -> int | None:
            if self.broken:
                raise RuntimeError("a bug of the adapter")
            return None

    channel = Limitless("chat", platform=install.platform)
    async with install.start(channel=channel) as life:
        await life.say("lost?", "m1")
        channel.broken = False
        await goes_on(life)

    assert install.outcomes() == {"m1": None, "m2": "answered"}


async def test_a_stop_that_comes_while_the_surroundings_open_lets_no_turn_begin(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """QUE-01: whatever an answer is surrounded with may take its time."""
    opening, go = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slowly(self: Replier) -> AsyncGenerator[None]:
        opening.set()
        await go.wait()
        yield

    monkeypatch.setattr(Replier, "answering", slowly)
    async with install.start() as life:
        await life.say("hi", "m1")
        await asyncio.wait_for(opening.wait(), 5)
        await life.say("/stop", "m2")
        await life.settled(1)
        go.set()
        assert await life.settled(1) == [("m1", "cancelled")]

    assert life.agent.started == []


async def test_a_cancellation_that_leaks_ends_one_turn_and_not_its_lane(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with install.start() as life:
        runs = Answer.run

        async def leaks(self: Answer) -> None:
            if self._turn.message.id == "m1":  # pyright: ignore[reportPrivateUsage]
                raise asyncio.CancelledError
            await runs(self)

        monkeypatch.setattr(Answer, "run", leaks)
        await life.say("first", "m1")
        await goes_on(life)
