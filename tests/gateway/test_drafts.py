from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermix.agent.model import ReasoningDelta, TextDelta, ToolCallDelta
from fermix.gateway import drafts as drafts_module
from fermix.gateway.drafts import DraftStream
from fermix.gateway.stream import Reader, Room
from fermix.message import Text
from tests.fakes.channel import FakeChannel, message
from tests.fakes.clock import ManualClock
from tests.fakes.platform import AWAY, LOST_ANSWER, Fault, Platform, Verb, rate_limited, slow

WORDS = "The quick brown fox jumps over the lazy dog and runs away. "


@dataclass
class Desk:
    """One answer being written, and the chat in which it appears."""

    channel: FakeChannel
    clock: ManualClock
    stream: DraftStream
    notes: list[tuple[str | None, tuple[str, ...]]] = field(default_factory=list)

    @property
    def platform(self) -> Platform:
        return self.channel.platform

    def show(self, text: str) -> None:
        self.stream.show(TextDelta(text))

    async def called(self, verb: Verb, count: int) -> None:
        await self.platform.until(lambda: self.platform.calls[verb] >= count)

    async def tick(self, seconds: float = 1.0) -> None:
        await self.clock.until_asleep()
        self.clock.advance(seconds)

    async def rest(self) -> None:
        """Let everything happen that waits for nothing."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def answer(self, text: str) -> None:
        """Do what the replier does at the end of a turn."""
        parts = await self.stream.finish(text)
        sealed = await self.stream.seal()
        for number, part in enumerate(parts[1:] if sealed else parts):
            await self.channel.send(message("hi"), Text(part), f"key-{number}")
        await self.stream.sweep()


@asynccontextmanager
async def desk(limit: int | None = None, *, moves_itself: bool = False) -> AsyncGenerator[Desk]:
    clock = ManualClock(moves_itself=moves_itself)
    channel = FakeChannel("x", platform=Platform(text_limit=limit, clock=clock), can=("drafts",))
    notes: list[tuple[str | None, tuple[str, ...]]] = []

    def note(live: str | None, others: Sequence[str]) -> None:
        notes.append((live, tuple(others)))

    reader = Reader(channel, message("hi"), Room(limit, len))

    async def announce(_key: str, others: Sequence[str]) -> None:
        notes.append(("?", tuple(others)))

    stream = DraftStream(reader, channel, clock, note, announce)
    async with asyncio.timeout(20), stream.running():
        yield Desk(channel, clock, stream, notes)


def plain(texts: Sequence[str]) -> str:
    return "".join("".join(texts).split())


async def test_a_draft_opens_at_thirty_characters() -> None:
    """Reference 3, section 4.2."""
    async with desk() as at:
        at.show("x" * 29)
        await at.rest()
        assert at.platform.calls["open"] == 0
        at.show("y")
        await at.called("open", 1)

        assert at.platform.texts() == ["x" * 29 + "y"]


async def test_a_short_answer_never_opens_a_draft() -> None:
    async with desk() as at:
        at.show("Yes.")
        await at.answer("Yes.")

        assert at.platform.texts() == ["Yes."]
        assert at.platform.calls["open"] == 0


async def test_only_text_is_shown() -> None:
    async with desk() as at:
        at.stream.show(ReasoningDelta(WORDS))
        at.stream.show(ToolCallDelta("shell"))
        await at.rest()

        assert at.platform.log() == []


async def test_edits_keep_the_pace_of_the_channel_and_show_the_newest_text() -> None:
    async with desk() as at:
        at.show(WORDS)
        await at.called("open", 1)
        for edits in range(1, 4):
            for _ in range(10):
                at.show(WORDS)
            await at.rest()
            assert at.platform.calls["edit"] == edits - 1
            await at.tick()
            await at.called("edit", edits)
            await at.rest()

            assert at.platform.texts() == [(WORDS * (1 + 10 * edits)).rstrip()]
        assert at.platform.log("refused") == []


async def test_one_write_is_in_flight() -> None:
    async with desk() as at:
        gate = asyncio.Event()
        at.platform.fail("open", slow(gate))
        at.show(WORDS)
        await at.called("open", 1)
        at.show(WORDS)
        at.clock.advance(10)
        await at.rest()
        assert (at.platform.calls["open"], at.platform.calls["edit"]) == (1, 0)
        gate.set()
        await at.tick()
        await at.called("edit", 1)

        assert at.platform.texts() == [(WORDS * 2).rstrip()]


async def test_the_draft_becomes_the_answer() -> None:
    async with desk() as at:
        at.show(WORDS)
        await at.called("open", 1)
        at.clock.advance(1)
        await at.answer(WORDS + "The end.")

        assert [(one.kind, one.text) for one in at.platform.shown()] == [("draft", WORDS + "The end.")]
        assert at.notes == [("?", ()), ("p1", ()), (None, ())]


async def test_a_draft_that_shows_the_whole_answer_is_not_written_again() -> None:
    async with desk() as at:
        at.show(WORDS)
        await at.called("open", 1)
        await at.answer(WORDS)

        assert at.platform.texts() == [WORDS.rstrip()]
        assert at.platform.calls["edit"] == 0


async def test_a_long_answer_goes_on_in_a_new_bubble() -> None:
    async with desk(200, moves_itself=True) as at:
        for _ in range(12):
            at.show(WORDS)
            await at.rest()
        await at.answer(WORDS * 12)

        assert plain(at.platform.texts()) == plain([WORDS * 12])
        assert at.platform.calls["open"] > 2
        assert at.platform.log("refused") == []


async def test_a_code_block_over_two_bubbles_is_closed_and_opened_again() -> None:
    code = "```py\n" + "".join(f"line{number} = {number}\n" for number in range(30)) + "```"
    async with desk(120, moves_itself=True) as at:
        for line in code.splitlines(keepends=True):
            at.show(line)
            await at.rest()
        await at.answer(code)

        assert all(text.startswith("```py\n") and text.endswith("\n```") for text in at.platform.texts())
        assert at.platform.log("refused") == []


async def test_the_write_budget_freezes_the_preview_and_not_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts_module, "MOST_WRITES", 3)
    async with desk(moves_itself=True) as at:
        for _ in range(10):
            at.show(WORDS)
            await at.rest()
        assert at.platform.calls["open"] + at.platform.calls["edit"] == 3
        await at.answer(WORDS * 10)

        assert at.platform.texts() == [(WORDS * 10).rstrip()]


async def test_two_failures_in_a_row_freeze_the_preview() -> None:
    async with desk(moves_itself=True) as at:
        at.show(WORDS)
        await at.called("open", 1)
        at.platform.fail("edit", AWAY, AWAY)
        for _ in range(5):
            at.show(WORDS)
            await at.rest()
        assert at.platform.calls["edit"] == 2
        await at.answer(WORDS * 6)

        assert at.platform.texts() == [(WORDS * 6).rstrip()]


async def test_a_platform_that_only_asks_for_time_does_not_freeze_the_preview() -> None:
    async with desk(moves_itself=True) as at:
        at.show(WORDS)
        await at.called("open", 1)
        at.platform.fail("edit", rate_limited(2), rate_limited(2), rate_limited(2))
        at.show(WORDS)
        await at.called("edit", 4)
        await at.rest()

        assert at.platform.texts() == [(WORDS * 2).rstrip()]


async def test_blanks_before_the_first_word_make_the_answer_no_other_text() -> None:
    async with desk(100, moves_itself=True) as at:
        at.show("\n \n")
        for _ in range(4):
            at.show(WORDS)
            await at.rest()
        opened = at.platform.calls["open"]
        await at.answer((WORDS * 4).strip())

        assert opened > 1
        assert at.platform.calls["discard"] == 0
        assert plain(at.platform.texts()) == plain([WORDS * 4])


async def test_a_cooldown_is_kept_and_one_complete_answer_remains() -> None:
    """TGM-23: a 13,000 character answer, 429 with retry_after 34, then 249."""
    text = WORDS * 220
    async with desk(4_096) as at:
        at.show(text[:1_000])
        await at.called("open", 1)
        at.platform.fail("edit", rate_limited(34), rate_limited(249))
        at.show(text[1_000:])
        await at.tick()
        await at.called("edit", 1)
        await at.rest()
        at.clock.advance(33)
        await at.rest()
        assert at.platform.calls["edit"] == 1
        async with asyncio.TaskGroup() as group:
            group.create_task(at.answer(text))
            await at.tick(1)
            await at.called("edit", 2)
            await at.rest()
            at.clock.advance(248)
            await at.rest()
            assert at.platform.calls["edit"] == 2
            at.clock.advance(1)

        assert plain(at.platform.texts()) == plain([text])
        assert at.platform.log("refused") == []


async def test_after_an_edit_of_unknown_fate_the_answer_is_written_whatever_was_shown_before() -> None:
    """DLV-07: the answer is what stood there, and the edit that may have landed made it another text."""
    async with desk(moves_itself=True) as at:
        at.show(WORDS)
        await at.called("open", 1)
        at.platform.fail("edit", LOST_ANSWER)
        at.show(WORDS)
        await at.called("edit", 1)
        await at.rest()
        at.stream.stop()  # nothing is written any more until the end
        at.stream._chat._stopped = False
        await at.answer(WORDS)

        assert at.platform.texts() == [WORDS.rstrip()]


async def test_a_draft_that_cannot_be_sealed_gives_way_to_the_whole_answer() -> None:
    async with desk(moves_itself=True) as at:
        at.show(WORDS)
        await at.called("open", 1)
        at.platform.fail("edit", AWAY, AWAY, AWAY)
        await at.answer(WORDS + "The end.")

        assert [(one.kind, one.text) for one in at.platform.shown()] == [("message", WORDS + "The end.")]
        assert at.platform.calls["edit"] == 3


async def test_a_draft_that_may_show_the_answer_goes_before_the_answer_is_sent() -> None:
    """DLV-07: the seal got no answer each time; the chat never shows two whole answers."""
    async with desk(moves_itself=True) as at:
        at.show(WORDS)
        await at.called("open", 1)
        at.platform.fail("edit", LOST_ANSWER, AWAY, AWAY)
        await at.answer(WORDS + "The end.")

        assert at.platform.texts() == [WORDS + "The end."]
        assert [entry.op for entry in at.platform.log()][-2:] == ["discard", "send"]
        assert not at.stream.doubtful


async def test_a_draft_that_may_show_the_answer_and_stays_makes_it_doubtful() -> None:
    async with desk(moves_itself=True) as at:
        at.show(WORDS)
        await at.called("open", 1)
        at.platform.fail("edit", LOST_ANSWER, AWAY, AWAY)
        at.platform.fail("discard", AWAY, AWAY, AWAY)
        await at.answer(WORDS + "The end.")

        assert at.stream.doubtful


async def test_a_platform_that_wants_too_long_a_pause_is_not_waited_for() -> None:
    async with desk() as at:
        at.show(WORDS)
        await at.called("open", 1)
        at.platform.fail("edit", rate_limited(3_600))
        at.show(WORDS)
        await at.tick()
        await at.called("edit", 1)
        at.clock.advance(1)
        parts = await at.stream.finish(WORDS * 2)

        assert await at.stream.seal() is None
        assert list(parts) == [(WORDS * 2).rstrip()]
        assert at.platform.calls["edit"] == 1


async def test_a_draft_whose_opening_may_have_landed_is_not_opened_again() -> None:
    async with desk(moves_itself=True) as at:
        at.platform.fail("open", LOST_ANSWER)
        for _ in range(5):
            at.show(WORDS)
            await at.rest()
        assert at.platform.calls["open"] == 1
        await at.answer(WORDS * 5)

        assert at.platform.texts()[1:] == [(WORDS * 5).rstrip()]


async def test_a_call_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts_module, "CALL_S", 0.02)
    async with desk(moves_itself=True) as at:
        at.show(WORDS)
        await at.called("open", 1)
        at.platform.fail("edit", slow(asyncio.Event()))
        await at.answer(WORDS + "The end.")

        assert at.platform.texts() == [WORDS + "The end."]
        assert at.platform.calls["edit"] == 2


async def test_a_stop_leaves_no_draft() -> None:
    async with desk(200, moves_itself=True) as at:
        for _ in range(8):
            at.show(WORDS)
            await at.rest()
        assert len(at.platform.shown()) > 1
        at.platform.fail("discard", AWAY, rate_limited(20))
        at.stream.stop()
        await at.stream.abandon()

        assert at.platform.shown() == []
        assert at.notes[-1] == (None, ())


async def test_a_stop_ends_the_wait_of_a_seal() -> None:
    async with desk() as at:
        at.show(WORDS)
        await at.called("open", 1)
        at.platform.fail("edit", rate_limited(100))
        at.clock.advance(1)
        await at.stream.finish(WORDS + "The end.")
        async with asyncio.TaskGroup() as group:
            sealing = group.create_task(at.stream.seal())
            await at.called("edit", 1)
            await at.rest()
            at.stream.stop()

        assert sealing.result() is None
        assert at.platform.calls["edit"] == 1


async def test_a_daemon_that_goes_leaves_the_draft_to_the_next_start() -> None:
    async with desk() as at:
        at.show(WORDS)
        await at.called("open", 1)
        at.clock.advance(1)
        at.platform.fail("edit", slow(asyncio.Event()))
        await at.stream.finish(WORDS + "The end.")
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            sealing = group.create_task(at.stream.seal())
            await at.called("edit", 1)
            at.stream.leave()
        await at.stream.sweep()

        assert sealing.result() is None
        assert at.platform.texts() == [WORDS.rstrip()]
        assert at.notes == [("?", ()), ("p1", ())]


async def test_an_answer_that_is_another_text_replaces_all_that_was_shown() -> None:
    """Reference 3, section 4.2: the text may shrink below what was sealed; nothing breaks and one answer remains."""
    async with desk(200, moves_itself=True) as at:
        for _ in range(8):
            at.show(WORDS)
            await at.rest()
        await at.answer("Short.")

        assert at.platform.texts() == ["Short."]


async def test_nothing_to_say_leaves_nothing() -> None:
    """DLV-09: what a turn has sent already is not said again by its draft."""
    async with desk(moves_itself=True) as at:
        at.show(WORDS)
        await at.called("open", 1)
        await at.answer("")

        assert at.platform.shown() == []


async def test_words_before_a_tool_call_stay_a_message_of_their_own() -> None:
    async with desk(moves_itself=True) as at:
        at.show("I will look into the folder first and ")
        await at.called("open", 1)
        at.show("then tell.")
        at.stream.show(ToolCallDelta("glob_search"))
        await at.rest()
        at.show("  There are three files in it, all of them small.")
        await at.called("open", 2)
        await at.answer("There are three files in it, all of them small. Done.")

        assert at.platform.texts() == [
            "I will look into the folder first and then tell.",
            "There are three files in it, all of them small. Done.",
        ]
        assert at.notes == [("?", ()), ("p1", ()), ("?", ("p1",)), ("p3", ("p1",)), (None, ())]


async def test_words_that_were_not_finished_in_time_become_the_answer() -> None:
    async with desk() as at:
        at.show("I will look into the folder first and ")
        await at.called("open", 1)
        at.show("then tell.")
        at.stream.show(ToolCallDelta("glob_search"))
        at.show("Three.")
        at.clock.advance(1)
        await at.answer("Three.")

        assert at.platform.texts() == ["Three."]


async def test_blanks_at_the_beginning_of_a_bubble_are_not_a_bubble_of_their_own() -> None:
    """What is shown behind them must not be shown again when more text makes another cut better."""
    begins, goes_on = f"{'x' * 30}a sentence. \n\nword {'x' * 30}", f"{'x' * 30}word word"
    async with desk(42, moves_itself=True) as at:
        at.show(begins)
        await at.called("open", 2)
        at.show(goes_on)
        await at.rest()
        await at.answer(begins + goes_on)

        assert plain(at.platform.texts()) == plain([begins + goes_on])


FAULTS = st.sampled_from((AWAY, rate_limited(5), rate_limited(0.5)))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(("word ", "a sentence. ", "\n\n", "x" * 30, "\U0001f600", "line\n")), max_size=60),
    st.lists(st.integers(0, 3), min_size=60, max_size=60),
    st.lists(FAULTS, max_size=2),
    st.lists(st.one_of(FAULTS, st.just(LOST_ANSWER)), max_size=4),
    st.integers(40, 200),
    st.booleans(),
)
async def test_whatever_fails_the_chat_ends_with_the_whole_answer_once(
    parts: list[str], pauses: list[int], opening: list[Fault], editing: list[Fault], limit: int, same: bool
) -> None:
    async with desk(limit, moves_itself=True) as at:
        at.platform.fail("open", *opening)
        at.platform.fail("edit", *editing)
        for part, pause in zip(parts, pauses, strict=False):
            at.show(part)
            for _ in range(pause * 5):
                await asyncio.sleep(0)
        final = "".join(parts).strip() if same else "Another answer."
        await at.answer(final)

        assert plain(at.platform.texts()) == plain([final])
        assert [entry.text for entry in at.platform.log("refused") if "not modified" not in entry.text] == []
