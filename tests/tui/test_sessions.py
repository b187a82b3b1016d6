"""Several conversations, under real keys."""

from __future__ import annotations

from collections.abc import Mapping

from tests.fakes.daemon import FakeDaemon
from tests.tui.conftest import OpenApp


def two_conversations() -> FakeDaemon:
    daemon = FakeDaemon()
    daemon.conversations = [
        {"session": "cli", "title": "first", "last_at": "2026-03-01T10:20:30Z", "messages": 2},
        {"session": "trip", "title": "plan the trip", "last_at": "2026-02-01T10:20:30Z", "messages": 1},
    ]
    daemon.histories = {"cli": [said("in the first")], "trip": [said("by train")]}
    return daemon


def said(text: str) -> Mapping[str, object]:
    return {"role": "user", "text": text, "at": ""}


async def test_history_is_there_after_a_restart(stage: OpenApp):
    """Issue 2: history restored after restart."""
    async with stage(two_conversations()) as on:
        await on.until_seen("in the first")


async def test_other_conversation_is_opened_and_answered_in(stage: OpenApp):
    """Issue 2: several conversations."""
    async with stage(two_conversations()) as on:
        await on.pilot.press("ctrl+r")
        await on.until_seen("plan the trip")
        await on.pilot.press("down", "enter")
        await on.until_seen("by train")
        gone = "in the first" not in on.seen
        await on.pilot.press(*"when?", "enter")
        sent = await on.daemon.wait_for("message.send")

        assert gone
        assert sent["session"] == "trip"


async def test_what_happens_in_another_conversation_stays_there(stage: OpenApp):
    async with stage(two_conversations()) as on:
        await on.until_seen("in the first")
        on.daemon.emit("turn.delta", session="trip", message_id="m9", kind="text", text="elsewhere")
        on.daemon.emit("turn.delta", session="cli", message_id="m8", kind="text", text="right here")
        await on.until_seen("right here")

        assert "elsewhere" not in on.seen


async def test_new_conversation_starts_empty(stage: OpenApp):
    async with stage(two_conversations()) as on:
        await on.until_seen("in the first")
        await on.pilot.press("ctrl+n")
        await on.until_seen("F e r m i x")
        await on.pilot.press(*"hi", "enter")
        sent = await on.daemon.wait_for("message.send")

        assert str(sent["session"]).startswith("chat-")


async def test_up_recalls_what_was_said_in_the_opened_conversation(stage: OpenApp):
    async with stage(two_conversations()) as on:
        await on.pilot.press("ctrl+r")
        await on.until_seen("plan the trip")
        await on.pilot.press("down", "enter")
        await on.until_seen("by train")
        await on.pilot.press("up")
        await on.until(lambda: on.app.screen.query_one("#prompt").text == "by train")  # type: ignore[attr-defined]


async def test_escape_stays_where_we_were(stage: OpenApp):
    async with stage(two_conversations()) as on:
        await on.pilot.press("ctrl+r")
        await on.until_seen("plan the trip")
        await on.pilot.press("escape")
        await on.until_seen("in the first")

        assert on.app.desk.conversation.session == "cli"


async def test_each_conversation_takes_two_lines_however_long_its_title(stage: OpenApp):
    daemon = two_conversations()
    daemon.conversations = [{**row, "title": "word " * 16} for row in daemon.conversations]
    async with stage(daemon, size=(40, 20)) as on:
        await on.pilot.press("ctrl+r")
        await on.until_seen("word word")

        assert sum("word" in line for line in on.seen.splitlines()) == 2
