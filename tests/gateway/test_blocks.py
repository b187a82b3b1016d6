from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fermix.agent.model import TextDelta, ToolCallDelta
from fermix.gateway.blocks import BLOCK_CHARS, BlockStream
from fermix.gateway.stream import Room
from tests.fakes.clock import ManualClock

PARAGRAPH = "A sentence of some length that fills its line. " * 12 + "\n\n"


@dataclass
class Desk:
    clock: ManualClock
    stream: BlockStream
    posted: list[str]
    fails: list[bool] = field(default_factory=list)

    def show(self, text: str) -> None:
        self.stream.show(TextDelta(text))

    async def tick(self) -> None:
        await self.clock.until_asleep()
        self.clock.advance(1)
        for _ in range(20):
            await asyncio.sleep(0)


@asynccontextmanager
async def desk(limit: int | None = None) -> AsyncGenerator[Desk]:
    clock, posted, fails = ManualClock(), list[str](), list[bool]()

    async def post(text: str) -> bool:
        if fails:
            fails.pop()
            return False
        posted.append(text)
        return True

    stream = BlockStream(Room(limit, len), clock, post)
    async with asyncio.timeout(5), stream.running():
        yield Desk(clock, stream, posted, fails)


async def test_blocks_go_out_between_paragraphs_and_the_rest_at_the_end() -> None:
    async with desk() as at:
        text = PARAGRAPH * 5
        at.show(text)
        await at.tick()
        await at.tick()
        rest = await at.stream.finish(text.strip())

        assert at.posted == [(PARAGRAPH * 2).rstrip()] * 2
        assert [len(block) <= BLOCK_CHARS for block in at.posted] == [True, True]
        assert [part.strip() for part in rest] == [PARAGRAPH.strip()]


async def test_one_block_a_tick() -> None:
    async with desk() as at:
        at.show(PARAGRAPH * 9)
        for ticks in range(1, 4):
            await at.tick()

            assert len(at.posted) == ticks


async def test_after_a_block_that_did_not_go_out_no_other_one_does() -> None:
    """A block may have landed or not: what is left to say comes at the end, and nothing before it."""
    async with desk() as at:
        at.fails.append(True)
        at.show(PARAGRAPH * 3)
        await at.tick()
        assert (at.posted, at.fails) == ([], [])
        at.show(PARAGRAPH)
        for _ in range(20):
            at.clock.advance(1)
            await asyncio.sleep(0)

        assert at.posted == []


async def test_an_answer_that_begins_like_words_before_a_tool_call_comes_whole() -> None:
    async with desk() as at:
        at.show("I will look.")
        await at.tick()
        at.stream.show(ToolCallDelta("look"))

        assert at.posted == ["I will look."]
        assert await at.stream.finish("I will look. Done.") == ["I will look. Done."]


async def test_a_pause_of_a_second_sends_a_shorter_block() -> None:
    async with desk() as at:
        at.show("I will look now.")
        await at.tick()

        assert at.posted == ["I will look now."]
        assert list(await at.stream.finish("I will look now.")) == []


async def test_an_open_code_block_waits_for_its_end() -> None:
    async with desk() as at:
        at.show("```py\nx = 1\n")
        await at.tick()
        assert at.posted == []
        at.show("```\n")
        await at.tick()

        assert at.posted == ["```py\nx = 1\n```"]


async def test_a_tool_call_sends_what_was_said_before_it() -> None:
    async with desk() as at:
        at.show("Let me look. ")
        at.stream.show(ToolCallDelta("shell"))
        at.show("It is done")
        await at.tick()
        rest = await at.stream.finish("It is done.")

        assert (at.posted, list(rest)) == (["Let me look."], ["It is done."])


async def test_an_answer_that_is_another_text_comes_whole() -> None:
    async with desk() as at:
        at.show("Half of an answer")
        await at.tick()

        assert list(await at.stream.finish("Another answer")) == ["Another answer"]


async def test_a_block_that_cannot_be_sent_comes_with_the_rest() -> None:
    async with desk() as at:
        at.fails.append(True)
        at.show(PARAGRAPH * 5)
        await at.tick()
        rest = await at.stream.finish(PARAGRAPH * 5)

        assert at.posted == []
        assert "".join("".join(rest).split()) == "".join((PARAGRAPH * 5).split())


async def test_the_channels_limit_holds_for_blocks_too() -> None:
    async with desk(100) as at:
        at.show(PARAGRAPH)
        for _ in range(4):
            await at.tick()
        rest = await at.stream.finish(PARAGRAPH.strip())

        assert max(len(block) for block in (*at.posted, *rest)) <= 100
        assert "".join("".join((*at.posted, *rest)).split()) == "".join(PARAGRAPH.split())


async def test_nothing_is_posted_after_a_stop() -> None:
    async with desk() as at:
        at.show(PARAGRAPH * 5)
        await at.clock.until_asleep()
        at.stream.stop()
        await at.tick()

        assert at.posted == []
