"""The bounded window of live widgets."""

from __future__ import annotations

from pathlib import Path

from textual.app import App, ComposeResult

from fermix.tui.blocks import Block, ReplyBlock, ToolBlock, UserBlock, split_text
from fermix.tui.screens import chat
from fermix.tui.widgets.transcript import LIVE_BLOCKS, SLACK_BLOCKS, More, Transcript


class Bench(App[None]):
    CSS_PATH = Path(chat.__file__).with_suffix(".tcss")
    CSS = "#transcript { display: block; }"

    def compose(self) -> ComposeResult:
        yield Transcript()

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def live(self) -> list[str]:
        """The keys of the live blocks, top to bottom."""
        keys = {widget: key for key, widget in self.transcript._widgets.items()}
        return [keys[child] for child in self.transcript.children if not isinstance(child, More)]


def blocks(count: int) -> list[Block]:
    return [
        UserBlock(f"b{number}", f"question {number}")
        if number % 3 == 0
        else ToolBlock(f"b{number}", f"c{number}", "shell", "{}", "ok")
        if number % 3 == 1
        else ReplyBlock(f"b{number}", f"answer **{number}**", "m", signed=True)
        for number in range(count)
    ]


async def test_five_thousand_blocks_keep_a_bounded_window():
    """TUI-07: a bounded window of live widgets, also while it grows and after a resize."""
    app = Bench()
    async with app.run_test(size=(80, 24)) as pilot:
        every = blocks(5_000)
        await app.transcript.show(every)
        at_first = len(app.live)
        for number in range(5_000, 5_100):
            every = [*every, UserBlock(f"b{number}", "more")]
            await app.transcript.show(every)
        await pilot.resize_terminal(120, 40)

        assert at_first == LIVE_BLOCKS
        assert len(app.live) <= LIVE_BLOCKS + SLACK_BLOCKS
        assert app.live[-1] == "b5099"


async def test_reader_reaches_the_first_block_and_the_last_again():
    app = Bench()
    async with app.run_test(size=(80, 24)) as pilot:
        every = blocks(200)
        await app.transcript.show(every)
        seen = set(app.live)
        for _ in range(10):
            await app.transcript.earlier()
            await pilot.pause()
            seen |= set(app.live)
            assert len(app.live) <= LIVE_BLOCKS + SLACK_BLOCKS
        first = app.live[0]
        await app.transcript.show([*every, UserBlock("new", "arrived meanwhile")])
        unmoved = app.live[0]
        await app.transcript.latest([*every, UserBlock("new", "arrived meanwhile")])

        assert seen == {block.key for block in every}
        assert (first, unmoved) == ("b0", "b0")
        assert app.live[-1] == "new"


async def test_blocks_stand_in_order_whatever_is_put_between_or_taken_out():
    app = Bench()
    async with app.run_test() as pilot:
        one, two, three, four = blocks(4)
        await app.transcript.show([one, three])
        await app.transcript.show([one, two, three, four])
        between = app.live
        await app.transcript.show([four, two])
        await app.transcript.show([two])
        await pilot.pause()

        assert between == ["b0", "b1", "b2", "b3"]
        assert app.live == ["b1"]


async def test_unchanged_block_keeps_its_widget():
    app = Bench()
    async with app.run_test():
        every = blocks(9)
        await app.transcript.show(every)
        before = dict(app.transcript._widgets)
        await app.transcript.show([*every[:8], ReplyBlock("b8", "answer **8** and more", "m", signed=True)])

        assert before == app.transcript._widgets


async def test_a_megabyte_of_brackets_is_shown_in_bounded_pieces():
    """TUI-01: 1 MB of brackets is neither parsed as markup nor as one piece."""
    text = "[" * 1_000_000
    every: list[Block] = [ReplyBlock(f"b{at}", part, "m") for at, part in enumerate(split_text(text))]
    app = Bench()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.transcript.show(every)
        await pilot.pause()
        last = "".join(segment.text for strip in app.screen._compositor.render_strips() for segment in strip)

        assert text == "".join(block.text for block in every if isinstance(block, ReplyBlock))
        assert len(app.live) == LIVE_BLOCKS
        assert "[" * 70 in last
