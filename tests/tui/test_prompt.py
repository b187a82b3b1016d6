"""The prompt under real keys."""

from __future__ import annotations

from textual import events
from textual.app import App, ComposeResult

from fermix.tui.messages import Submitted
from fermix.tui.widgets.prompt import Prompt


class Bench(App[None]):
    """A prompt and what it submitted."""

    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[str] = []

    def compose(self) -> ComposeResult:
        yield Prompt()

    def on_mount(self) -> None:
        self.query_one(Prompt).focus()

    def on_submitted(self, message: Submitted) -> None:
        self.submitted.append(message.text)

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)


async def test_enter_sends_and_other_enters_break_the_line():
    app = Bench()
    async with app.run_test() as pilot:
        await pilot.press("a", "ctrl+j", "b", "shift+enter", "c", "enter")

    assert app.submitted == ["a\nb\nc"]


async def test_blank_text_is_not_sent():
    app = Bench()
    async with app.run_test() as pilot:
        await pilot.press("space", "ctrl+j", "enter")

        assert app.submitted == []
        assert app.prompt.text == " \n"


async def test_enter_never_overtakes_the_letters_before_it():
    """Keys that arrive in one read of the terminal are handled in their order."""
    app = Bench()
    async with app.run_test() as pilot:
        for key in (*"quick", "enter"):
            app.post_message(events.Key(key, key if len(key) == 1 else "\r"))
        await pilot.pause()

    assert app.submitted == ["quick"]


async def test_paste_of_ten_thousand_characters_arrives_intact():
    """Issue 2: survives a 10,000-character paste."""
    line = "Line with 你好 and [brackets] to fill it up to size.\n"
    pasted = (line * 200)[:10_000]
    app = Bench()
    async with app.run_test() as pilot:
        app.post_message(events.Paste(pasted))
        await pilot.pause()
        await pilot.press("enter")

    assert app.submitted == [pasted]


async def test_pasted_control_characters_are_drawn_as_symbols():
    """TUI-05: what is in the text is kept, what is drawn cannot act on the terminal."""
    app = Bench()
    async with app.run_test() as pilot:
        app.post_message(events.Paste("a\x1b[31mb\x00"))
        await pilot.pause()

        assert app.prompt.text == "a\x1b[31mb\x00"
        assert app.prompt.get_line(0).plain == "a␛[31mb␀"


async def test_backspace_and_arrows_take_whole_graphemes():
    """TUI-05: 👩‍👩‍👧, 🇻🇳 and combining accents are one each."""
    app = Bench()
    async with app.run_test() as pilot:
        app.prompt.insert("a👩‍👩‍👧🇻🇳e\u0301")
        await pilot.press("left")
        before_accent = app.prompt.cursor_location
        await pilot.press("left")
        before_flag = app.prompt.cursor_location
        await pilot.press("right", "backspace", "backspace")

        assert before_accent == (0, 8)
        assert before_flag == (0, 6)
        assert app.prompt.text == "ae\u0301"


async def test_up_and_down_walk_through_what_was_sent_and_back_to_what_was_not():
    app = Bench()
    async with app.run_test() as pilot:
        await pilot.press(*"one", "enter", *"two", "enter", *"new", "up")
        last = app.prompt.text
        await pilot.press("up", "up")
        first = app.prompt.text
        await pilot.press("down", "down", "down")

        assert (last, first, app.prompt.text) == ("two", "one", "new")


async def test_arrows_move_inside_a_text_of_several_lines_before_they_recall():
    app = Bench()
    async with app.run_test() as pilot:
        await pilot.press(*"old", "enter", "a", "ctrl+j", "b", "up")
        inside = app.prompt.text
        await pilot.press("up")

        assert inside == "a\nb"
        assert app.prompt.text == "old"


async def test_terminal_cursor_stands_at_the_caret():
    """TUI-09: an input method draws its preedit at the terminal's cursor."""
    app = Bench()
    async with app.run_test() as pilot:
        await pilot.press(*"ab你")
        await pilot.pause()

        assert app.cursor_position == app.prompt.cursor_screen_offset
        assert app.cursor_position.x == app.prompt.content_region.x + 4
