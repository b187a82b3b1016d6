"""Reading a long conversation: paging, loading what is beyond the window, links, costly text."""

from __future__ import annotations

from fermix.tui.widgets.reply import MAX_BRACKETS, Reply, ReplyText
from tests.fakes.daemon import FakeDaemon
from tests.tui.conftest import OpenApp


def long_history() -> FakeDaemon:
    daemon = FakeDaemon()
    daemon.histories["cli"] = [{"role": "user", "text": f"line {number}", "at": ""} for number in range(120)]
    return daemon


async def test_page_keys_reach_the_first_line_and_the_last(stage: OpenApp):
    async with stage(long_history(), size=(80, 20)) as on:
        await on.until_seen("line 119")
        for _ in range(60):
            await on.pilot.press("pageup")
            if "line 0 " in on.seen:
                break
        await on.until_seen("line 0 ")
        later = "↓" in on.seen or "line 119" not in on.seen
        for _ in range(60):
            await on.pilot.press("pagedown")
            if "line 119" in on.seen:
                break
        await on.until_seen("line 119")

        assert later


async def test_ctrl_end_goes_to_the_latest_at_once(stage: OpenApp):
    async with stage(long_history(), size=(80, 20)) as on:
        await on.until_seen("line 119")
        for _ in range(8):
            await on.pilot.press("pageup")
        await on.until(lambda: "line 119" not in on.seen)
        await on.pilot.press("ctrl+end")
        await on.until_seen("line 119")


async def test_line_above_the_window_loads_more_when_it_is_clicked(stage: OpenApp):
    async with stage(long_history(), size=(80, 20)) as on:
        await on.until_seen("line 119")
        for _ in range(20):
            if "earlier · PgUp" in on.seen:
                break
            on.app.screen.query_one("#transcript").scroll_home(animate=False)
            await on.pilot.pause()
        await on.until_seen("90 earlier · PgUp")
        await on.pilot.click("#earlier")
        on.app.screen.query_one("#transcript").scroll_home(animate=False)
        await on.until_seen("70 earlier · PgUp")


async def test_reader_is_not_moved_by_a_reply_that_streams(stage: OpenApp):
    async with stage(long_history(), size=(80, 20)) as on:
        await on.until_seen("line 119")
        for _ in range(3):
            await on.pilot.press("pageup")
        await on.until(lambda: "line 119" not in on.seen)
        transcript = on.app.screen.query_one("#transcript")
        before = transcript.scroll_y
        on.say("m1", "news that streams in below")
        await on.until(lambda: bool(on.app.screen.query(Reply)))
        await on.pilot.pause()

        assert before == transcript.scroll_y
        assert "news that streams" not in on.seen


async def test_link_is_copied_and_never_opened(stage: OpenApp):
    """Foreign text cannot act: a link shows where it leads and goes to the clipboard."""
    async with stage() as on:
        message_id = await on.send("where?")
        on.begin(message_id)
        on.finish(message_id, "See [the notes](https://example.org/a?b=c).")
        await on.until_seen("See the notes.")
        text = on.app.screen.query_one(ReplyText)
        text.post_message(ReplyText.LinkClicked(text, "https://example.org/a?b=c"))
        await on.until_seen("https://example.org/a?b=c")

        assert on.app.clipboard == "https://example.org/a?b=c"


async def test_reply_that_becomes_costly_while_it_streams_goes_on_as_plain_text(stage: OpenApp):
    """TUI-01: link parsing grows with the square of brackets, so many of them are not parsed."""
    async with stage() as on:
        message_id = await on.send("brackets")
        on.begin(message_id)
        on.say(message_id, "# Heading with *words*\n\n")
        await on.until_seen("Heading with words")
        on.say(message_id, "[" * (MAX_BRACKETS + 1))
        await on.until_seen("# Heading with *words*")
        on.say(message_id, " still *going*")
        await on.until_seen("still *going*")


async def test_draft_that_the_whole_reply_contradicts_is_replaced(stage: OpenApp):
    async with stage() as on:
        message_id = await on.send("which?")
        on.begin(message_id)
        on.say(message_id, "the *first* draft")
        await on.until_seen("the first draft")
        on.finish(message_id, "a **different** text")
        await on.until_seen("a different text")

        assert "first draft" not in on.seen
