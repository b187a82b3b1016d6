"""The chat screen under real keys."""

from __future__ import annotations

import pytest

from fermix.tui.widgets import waiting
from fermix.tui.widgets.prompt import Prompt
from fermix.tui.widgets.tool_card import ToolCard
from tests.fakes.daemon import READY, FakeDaemon
from tests.requirements import covers
from tests.tui.conftest import OpenApp


@covers("tui.chat", "tui.attaches")
async def test_question_is_sent_and_its_answer_streams_in(stage: OpenApp):
    """Issue 2: chat with streaming Markdown."""
    async with stage() as on:
        await on.pilot.press(*"what is this?", "enter")
        sent = await on.daemon.wait_for("message.send")
        on.begin(str(sent["id"]), "what is this?")
        on.say(str(sent["id"]), "It is a **te")
        await on.until_seen("It is a **te")
        on.say(str(sent["id"]), "st**.")
        await on.until_seen("It is a test.")
        on.finish(str(sent["id"]), "It is a **test**.")
        await on.until_seen("1,200 in, 340 out")

        assert sent["text"] == "what is this?"
        assert sent["session"] == "cli"
        assert "openai/gpt-5.5" in on.seen


async def test_keys_work_before_the_daemon_does_and_nothing_is_lost(stage: OpenApp):
    """Issue 2: typing-ready before the daemon is."""
    daemon = FakeDaemon(up=False)
    async with stage(daemon, connected=False) as on:
        await on.pilot.press(*"early", "enter", *"late")
        await on.until_seen("held until the daemon answers")
        before = list(daemon.requests)
        daemon.up = True
        sent = await daemon.wait_for("message.send")

        assert before == []
        assert sent["text"] == "early"
        assert on.app.screen.query_one(Prompt).text == "late"


async def test_daemon_that_had_to_be_started_is_announced(stage: OpenApp):
    """Issue 2: it outlives the screen, and the screen says so."""
    daemon = FakeDaemon(up=False)

    async def start() -> str:
        daemon.up = True
        return "The daemon was started; it keeps running after you leave."

    async with stage(daemon, start_daemon=start) as on:
        await on.until_seen("keeps running after you leave")


async def test_lost_daemon_is_found_again_and_its_history_restored(stage: OpenApp):
    """Issue 2: survives loss and return of the daemon."""
    async with stage() as on:
        on.daemon.up = False
        on.daemon.drop()
        await on.until_seen("no daemon: type `fermix start`")
        message = on.app.desk.conversation
        await on.pilot.press(*"still here?", "enter")
        on.daemon.histories["cli"] = [{"role": "assistant", "text": "from before", "at": "", "model": "m"}]
        on.daemon.up = True
        await on.daemon.wait_for("message.send")
        await on.until_seen("from before")

        assert on.daemon.connections == 2
        assert message is on.app.desk.conversation


@pytest.mark.parametrize("way", ["escape", "command"])
async def test_running_turn_is_stopped(stage: OpenApp, way: str):
    """Issue 2: `/stop` and Esc cancel the turn of that conversation."""
    async with stage() as on:
        message_id = await on.send("count to a million")
        on.begin(message_id)
        await on.until_seen("thinking")
        await on.pilot.press("escape") if way == "escape" else await on.pilot.press(*"/stop", "enter")
        asked = await on.daemon.wait_for("turn.stop")
        on.finish(message_id, "", outcome="cancelled")
        await on.until_seen("Stopped.")

        one = {"message_id": message_id} if way == "escape" else {}  # what waits behind it runs next
        assert asked == {"session": "cli", **one}
        assert len(on.daemon.sent("message.send")) == 1


async def test_stop_all_goes_to_the_gateway_like_every_command(stage: OpenApp):
    """Issue 3: `/stop all` reaches beyond this conversation, which only the gateway can."""
    async with stage() as on:
        await on.pilot.press(*"/stop all", "enter")
        asked = await on.daemon.wait_for("message.send")

        assert asked["text"] == "/stop all"
        assert not on.daemon.sent("turn.stop")


async def test_channel_that_nobody_reads_is_told_in_the_last_line(stage: OpenApp):
    """Issue 3, health of a channel: degraded in the TUI, with the reason, until it is back."""
    async with stage() as on:
        await on.until_seen("connected")
        on.daemon.emit("service", service="channel telegram", state="down", reason="no sign of life yet")
        await on.until_seen("▲ channel telegram: no sign of life yet")
        on.daemon.emit("service", service="channel telegram", state="up", reason="")
        await on.until(lambda: "telegram" not in on.seen)


async def test_what_did_not_work_when_the_terminal_came_is_told_as_well(stage: OpenApp):
    row = {"service": "channel telegram", "state": "down", "reason": "no sign of life yet"}
    async with stage(FakeDaemon(status={**READY, "services": [row]})) as on:
        await on.until_seen("▲ channel telegram: no sign of life yet")


async def test_tool_call_is_a_card_that_shows_its_result_on_demand(stage: OpenApp):
    """Issue 2: tool calls shown as cards while they run."""
    async with stage() as on:
        message_id = await on.send("list")
        on.begin(message_id)
        call = {"session": "cli", "turn_id": "t1", "call_id": "c1", "name": "shell"}
        on.daemon.emit("tool.started", **call, arguments='{"command": "ls"}')
        await on.until_seen('shell  {"command": "ls"}')
        on.daemon.emit("tool.finished", **call, ok=True, duration_s=0.25, result="alpha.txt\nbeta.txt")
        await on.until_seen("2 lines")
        hidden = "alpha.txt" not in on.seen
        await on.pilot.press("ctrl+o")
        await on.until_seen("beta.txt")

        assert hidden
        assert on.app.screen.query_one(ToolCard).block.state == "ok"


async def test_message_behind_a_running_turn_is_shown_waiting(stage: OpenApp):
    """Issue 2: the queue behind a running turn is visible."""
    async with stage() as on:
        first = await on.send("first")
        on.begin(first)
        await on.until_seen("thinking")
        second = await on.send("second question")
        on.daemon.emit("message.accepted", session="cli", id=second, text="second question", at="")
        on.daemon.emit(
            "queue.changed", session="cli", running=first, waiting=[{"id": second, "text": "second question"}]
        )
        await on.until_seen("second question  next")


@pytest.mark.parametrize(
    "text",
    [
        "[/bold] closes",
        "[red",
        "[link=x]y",
        "<b>bold</b> <script>x</script>",
        "[@click=app.quit]x",
        "$primary [$error]",
    ],
)
async def test_foreign_text_is_shown_as_it_was_written(stage: OpenApp, text: str):
    """TUI-01: never parsed as markup, in a message, a reply, a tool card, a note or the queue."""
    async with stage(size=(110, 50)) as on:
        message_id = await on.send(f"user {text}")
        on.begin(message_id)
        call = {"session": "cli", "turn_id": "t1", "call_id": "c1", "name": "shell"}
        on.daemon.emit("tool.started", **call, arguments=f"args {text}")
        on.daemon.emit("tool.finished", **call, ok=True, duration_s=0.1, result=f"result {text}")
        on.daemon.emit(
            "queue.changed", session="cli", running=message_id, waiting=[{"id": "w", "text": f"wait {text}"}]
        )
        await on.until_seen(f"wait {text}")
        await on.pilot.press("ctrl+o")
        on.daemon.emit("reply", session="cli", message_id=message_id, text=f"reply {text}", model="m")
        on.daemon.emit("turn.ended", session="cli", message_id=message_id, outcome="failed", error=f"error {text}")

        for where in ("user", "args", "result", "reply", "error"):
            await on.until_seen(f"{where} {text}")


async def test_card_shows_what_would_hide_in_a_command(stage: OpenApp):
    """INJ-07: ANSI escapes, bidi controls and zero-width characters are visible in the terminal UI."""
    async with stage() as on:
        on.begin(await on.send("x"))
        on.daemon.emit(
            "tool.started",
            session="cli",
            turn_id="t1",
            call_id="c1",
            name="sh\u200bell",
            arguments="ls \x1b[8m; rm\u202e x",
        )
        await on.until_seen("sh⟨U+200B⟩ell")

        assert "ls ␛[8m; rm⟨U+202E⟩ x" in on.seen


async def test_missing_provider_is_said_plainly(stage: OpenApp):
    """Issue 2: with no provider configured it says so and answers with the embedded default."""
    status = {**READY, "providers": [], "model": "local/qwen2.5-coder-0.5b"}
    async with stage(FakeDaemon(status=status)) as on:
        await on.until_seen("No provider is set up, so the local model answers.")


async def test_refused_message_is_explained_where_it_stands(stage: OpenApp):
    async with stage() as on:
        on.daemon.refuses["message.send"] = "the daemon is stopping"
        await on.send("hello")
        await on.until_seen("The daemon refused: the daemon is stopping")


async def test_second_ctrl_c_leaves(stage: OpenApp):
    async with stage() as on:
        await on.pilot.press("ctrl+c")
        await on.until_seen("Press Ctrl+C again")
        still = on.app.is_running
        await on.pilot.press("ctrl+c")
        await on.until(lambda: on.app.return_value is not None)

        assert still
        assert on.app.return_value == 0


async def test_cleared_history_leaves_the_screen(stage: OpenApp):
    async with stage() as on:
        on.daemon.histories["cli"] = [{"role": "assistant", "text": "old words", "at": "", "model": "m"}]
        on.daemon.emit("conversation.changed", session="cli")
        await on.until_seen("old words")
        on.daemon.histories["cli"] = []
        on.daemon.emit("conversation.changed", session="cli")
        await on.until(lambda: "old words" not in on.seen)


async def test_answer_to_new_stays_on_the_screen(stage: OpenApp):
    """`/new` says the same here as in `fermix ask`."""
    async with stage() as on:
        on.daemon.histories["cli"] = [{"role": "assistant", "text": "old words", "at": "", "model": "m"}]
        on.daemon.emit("conversation.changed", session="cli")
        await on.until_seen("old words")
        message_id = await on.send("/new")
        on.daemon.histories["cli"] = []
        on.daemon.emit("message.accepted", session="cli", id=message_id, text="/new", at="")
        on.daemon.emit("conversation.changed", session="cli")
        on.daemon.emit("reply", session="cli", message_id=message_id, text="A new session begins.", model=None)
        on.daemon.emit("turn.ended", session="cli", message_id=message_id, outcome="handled", error="")
        await on.daemon.wait_for("status", 3)
        await on.until_seen("A new session begins.")

        assert "old words" not in on.seen


async def test_status_line_shows_who_answers_now_not_who_did_long_ago(stage: OpenApp):
    daemon = FakeDaemon()
    daemon.histories["cli"] = [{"role": "assistant", "text": "old words", "at": "", "model": "old/model"}]
    async with stage(daemon) as on:
        await on.until_seen("old words")
        on.begin(await on.send("hi"))
        await on.until_seen("thinking")
        while_it_runs = on.seen
        on.daemon.emit("reply", session="cli", message_id="m1", text="stood in", model="groq/second")

        assert "connected · openai/gpt-5.5" in while_it_runs
        await on.until_seen("connected · groq/second")


async def test_long_thinking_shows_its_seconds(stage: OpenApp, monkeypatch: pytest.MonkeyPatch):
    now_s = [100.0]
    monkeypatch.setattr(waiting, "monotonic", lambda: now_s[0])
    async with stage() as on:
        on.begin(await on.send("hi"))
        await on.until_seen("thinking  Esc stops")
        now_s[0] += 7.5
        await on.until_seen("thinking 7 s  Esc stops")


@pytest.mark.parametrize("columns", [40, 60, 100])
async def test_narrow_screen_keeps_what_is_needed_most(stage: OpenApp, columns: int):
    async with stage(size=(columns, 16)) as on:
        on.app.desk.model = "local/qwen2.5-coder-0.5b-instruct"
        on.app.screen.draw_soon()  # type: ignore[attr-defined]
        await on.until_seen("local/qwen2.5-coder-0.5b-instruct")

        assert "Enter send" in on.seen
        assert "Esc stop" in on.seen
        assert "^C quits" in on.seen or "Ctrl+C twice quits" in on.seen


async def test_toast_leaves_the_prompt_free(stage: OpenApp):
    async with stage() as on:
        await on.pilot.press("ctrl+c")
        await on.until_seen("Press Ctrl+C again")
        lines = on.seen.splitlines()

        assert "Press Ctrl+C again" in "".join(lines[:6])
        assert "Ask anything" in on.seen


async def test_lost_daemon_says_what_to_type(stage: OpenApp):
    async with stage(FakeDaemon(up=False), size=(40, 16), connected=False) as on:
        await on.until_seen("○ no daemon: type `fermix start`")


@pytest.mark.parametrize("columns", [44, 100])
async def test_a_question_for_approval_is_shown_to_its_last_character(stage: OpenApp, columns: int) -> None:
    """Issue 3, approvals: the prompt shows all of it. What Textual draws of a longer line ends at the edge."""
    folder = "/home/ann/" + "a-quite-harmless-name/" * 5 + "secrets"
    async with stage(size=(columns, 40)) as on:
        message_id = await on.send("/grant path x")
        question = f'May I change what I can reach?\n\n```\nopens: "{folder}" (127 characters)\n```\n\nApprove?'
        on.daemon.emit("reply", session="cli", message_id=message_id, text=question, model=None)
        await on.until_seen("Approve?")

        drawn = "".join(line.strip(" ▌▐█") for line in on.seen.splitlines())
        assert f'opens: "{folder}" (127 characters)'.replace(" ", "") in drawn.replace(" ", "")
