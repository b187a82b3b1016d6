"""The fold from events to blocks, without a screen."""

from __future__ import annotations

from typing import Any

import pytest

from fermix.tui.blocks import PART_CHARS, Block, NoteBlock, ReplyBlock, ToolBlock, UserBlock
from fermix.tui.session import Conversation, Queued


def shown(conversation: Conversation) -> list[tuple[str, str]]:
    return [(type(block).__name__, _text(block)) for block in conversation.blocks]


def _text(block: Block) -> str:
    return f"{block.name}:{block.state}" if isinstance(block, ToolBlock) else block.text


def running(text: str = "hi", message_id: str = "m1") -> Conversation:
    """A conversation whose first message runs."""
    conversation = Conversation("cli")
    conversation.submit(message_id, text, connected=True)
    emit(conversation, "message.accepted", id=message_id, text=text)
    emit(conversation, "queue.changed", running=message_id, waiting=[])
    emit(conversation, "turn.started", message_id=message_id)
    return conversation


def emit(conversation: Conversation, event: str, **fields: Any) -> None:
    conversation.apply(event, fields)


def say(conversation: Conversation, text: str, kind: str = "text") -> None:
    emit(conversation, "turn.delta", message_id="m1", kind=kind, text=text)


def end(conversation: Conversation, outcome: str = "completed", error: str = "") -> None:
    emit(conversation, "turn.ended", message_id="m1", outcome=outcome, error=error, input_tokens=12, output_tokens=3)


def test_streamed_words_become_the_reply_that_is_signed_at_the_end():
    conversation = running()
    say(conversation, "Hel")
    say(conversation, "lo")
    draft = conversation.blocks[-1]
    emit(conversation, "reply", message_id="m1", text="Hello", model="openai/gpt-5.5")
    end(conversation)

    assert conversation.blocks == [
        UserBlock("cli.1", "hi"),
        ReplyBlock(draft.key, "Hello", "openai/gpt-5.5", signed=True),
    ]
    assert (conversation.running, conversation.activity) == (None, "")
    assert (conversation.input_tokens, conversation.output_tokens) == (12, 3)


def test_whole_reply_mends_a_draft_that_lost_words():
    """`turn.delta` may be dropped for a slow client, the reply is whole: protocol/methods.py."""
    conversation = running()
    say(conversation, "Hel")
    emit(conversation, "reply", message_id="m1", text="Hello there", model="m")

    assert shown(conversation) == [("UserBlock", "hi"), ("ReplyBlock", "Hello there")]


def test_text_before_and_after_a_tool_call_stays_on_its_side():
    conversation = running()
    say(conversation, "I look.")
    emit(conversation, "tool.started", call_id="c1", name="shell", arguments="{}")
    emit(conversation, "tool.finished", call_id="c1", name="shell", ok=True, duration_s=0.5, result="x")
    say(conversation, "Found ")
    emit(conversation, "reply", message_id="m1", text="Found it.", model="m")

    assert shown(conversation) == [
        ("UserBlock", "hi"),
        ("ReplyBlock", "I look."),
        ("ToolBlock", "shell:ok"),
        ("ReplyBlock", "Found it."),
    ]


def test_tool_that_ends_before_it_starts_is_one_finished_card():
    """TUI-06: tool calls arriving out of order are placed by id."""
    conversation = running()
    emit(conversation, "tool.finished", call_id="c2", name="shell", ok=False, duration_s=1.0, result="no")
    emit(conversation, "tool.started", call_id="c1", name="file_read", arguments="{}")
    emit(conversation, "tool.started", call_id="c2", name="shell", arguments='{"command": "x"}')
    emit(conversation, "tool.finished", call_id="c1", name="file_read", ok=True, duration_s=1.0, result="yes")

    assert conversation.blocks[1:] == [
        ToolBlock("cli.2", "c2", "shell", '{"command": "x"}', "failed", "no", 1.0),
        ToolBlock("cli.3", "c1", "file_read", "{}", "ok", "yes", 1.0),
    ]


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("turn.delta", {"message_id": "m1", "kind": "text", "text": ""}),
        ("turn.delta", {"message_id": "m1", "kind": "reasoning", "text": None}),
        ("turn.delta", {"message_id": "", "kind": "text", "text": "x"}),
        ("turn.delta", {}),
        ("reply", {"message_id": "m1", "text": None}),
        ("reply", {"message_id": "m1", "text": "  \n"}),
        ("turn.ended", {"outcome": "completed"}),
        ("turn.started", {"message_id": None}),
        ("no.such.event", {"message_id": "m1"}),
    ],
)
def test_empty_and_null_updates_change_nothing(event: str, fields: dict[str, object]):
    """TUI-06: empty text update, empty thought, null response are no-ops."""
    conversation = running()
    before = list(conversation.blocks), conversation.running, conversation.activity

    conversation.apply(event, fields)

    assert (conversation.blocks, conversation.running, conversation.activity) == before


def test_news_of_a_message_that_ended_is_ignored():
    """TUI-06: late events of an ended turn are no-ops."""
    conversation = running()
    end(conversation)
    before = list(conversation.blocks)

    say(conversation, "late")
    emit(conversation, "reply", message_id="m1", text="late")
    emit(conversation, "turn.started", message_id="m1")
    emit(conversation, "tool.finished", call_id="c9", name="shell", ok=True, result="late")
    end(conversation, "failed", "late")

    assert conversation.blocks == before
    assert conversation.running is None


def test_turn_that_ran_before_this_screen_attached_is_taken_up():
    conversation = Conversation("cli")
    emit(conversation, "turn.delta", message_id="other", kind="text", text="half ")
    emit(conversation, "turn.delta", message_id="other", kind="text", text="way")

    assert shown(conversation) == [("ReplyBlock", "half way")]
    assert conversation.running == "other"


def test_message_behind_a_running_turn_waits_until_it_runs():
    conversation = running()
    conversation.submit("m2", "next", connected=True)
    held = conversation.waiting
    emit(conversation, "message.accepted", id="m2", text="next")
    emit(conversation, "queue.changed", running="m1", waiting=[{"id": "m2", "text": "next"}])
    queued = conversation.waiting
    end(conversation)
    emit(conversation, "queue.changed", running="m2", waiting=[])

    assert held == (Queued("m2", "next", held=True),)
    assert queued == (Queued("m2", "next", held=False),)
    assert conversation.waiting == ()
    assert shown(conversation) == [("UserBlock", "hi"), ("UserBlock", "next")]


def test_message_typed_without_a_daemon_is_held_in_order():
    conversation = Conversation("cli")
    conversation.submit("m1", "one", connected=False)
    conversation.submit("m2", "two", connected=False)

    assert conversation.waiting == (Queued("m1", "one", held=True), Queued("m2", "two", held=True))
    assert conversation.blocks == []


def test_message_of_another_client_appears_when_it_runs():
    conversation = Conversation("cli")
    emit(conversation, "message.accepted", id="x", text="from ask")
    emit(conversation, "turn.started", message_id="x")

    assert shown(conversation) == [("UserBlock", "from ask")]


def test_command_is_answered_without_a_turn():
    conversation = Conversation("cli")
    conversation.submit("m1", "/help", connected=True)
    emit(conversation, "message.accepted", id="m1", text="/help")
    emit(conversation, "reply", message_id="m1", text="/new starts again", model=None)
    end(conversation, "handled")

    assert shown(conversation) == [("UserBlock", "/help"), ("ReplyBlock", "/new starts again")]
    assert conversation.idle


def test_stop_marks_running_tools_and_says_so():
    conversation = running()
    emit(conversation, "tool.started", call_id="c1", name="shell", arguments="{}")
    end(conversation, "cancelled")

    assert shown(conversation)[1:] == [("ToolBlock", "shell:stopped"), ("NoteBlock", "Stopped.")]


def test_message_dropped_by_a_stop_stands_behind_the_stopped_turn():
    conversation = running()
    conversation.submit("m2", "next", connected=True)
    emit(conversation, "message.accepted", id="m2", text="next")
    emit(conversation, "turn.ended", message_id="m2", outcome="cancelled", error="")
    emit(conversation, "queue.changed", running="m1", waiting=[])
    say(conversation, "half")
    end(conversation, "cancelled")

    assert shown(conversation)[1:] == [
        ("ReplyBlock", "half"),
        ("NoteBlock", "Stopped."),
        ("UserBlock", "next"),
        ("NoteBlock", "Dropped before it ran."),
    ]
    assert conversation.waiting == ()


def test_answer_to_new_outlives_the_history_it_cleared():
    conversation = Conversation("cli")
    conversation.load(ENTRIES)
    conversation.submit("m1", "/new", connected=True)
    conversation.forget()
    emit(conversation, "reply", message_id="m1", text="A new session begins.", model=None)
    conversation.load([])
    after_it = shown(conversation)
    conversation.load(ENTRIES[:1])

    assert after_it == [("ReplyBlock", "A new session begins.")]
    assert shown(conversation) == [("UserBlock", "hi")]


def test_failure_is_said_once():
    conversation = running()
    emit(conversation, "reply", message_id="m1", text="The key was refused.", model=None)
    end(conversation, "failed", "The key was refused.")
    other = running()
    end(other, "failed", "The key was refused.")

    assert shown(conversation)[1:] == [("ReplyBlock", "The key was refused.")]
    assert other.blocks[1:] == [NoteBlock("cli.2", "The key was refused.", "error")]


def test_long_reply_streams_into_small_parts_and_its_end_moves_none_of_them():
    conversation = running()
    text = "".join(f"Paragraph {number} of a long reply.\n\n" for number in range(600))
    for start in range(0, len(text), 97):
        say(conversation, text[start : start + 97])
    drafted = [(block.key, _text(block)) for block in conversation.blocks]
    emit(conversation, "reply", message_id="m1", text=text, model="m")

    assert drafted == [(block.key, _text(block)) for block in conversation.blocks]
    assert max(len(_text(block)) for block in conversation.blocks) <= PART_CHARS
    assert [getattr(block, "signed", False) for block in conversation.blocks[-2:]] == [False, True]


ENTRIES: list[dict[str, object]] = [
    {"role": "user", "text": "hi", "at": "2026-01-01T00:00:00Z"},
    {"role": "tool", "text": "a b", "at": "", "tool": "shell", "arguments": "{}", "ok": True},
    {"role": "assistant", "text": "Hello", "at": "", "model": "openai/gpt-5.5"},
    {"role": "note", "text": "stopped", "at": ""},
    {"role": "assistant", "text": "", "at": "", "model": None},
]


def test_history_is_shown_as_it_was():
    conversation = Conversation("cli")
    conversation.load(ENTRIES)

    assert conversation.blocks == [
        UserBlock("cli.1", "hi"),
        ToolBlock("cli.2", "", "shell", "{}", "ok", "a b"),
        ReplyBlock("cli.3", "Hello", "openai/gpt-5.5", signed=True),
        NoteBlock("cli.4", "stopped", "note"),
    ]


def test_history_that_arrives_during_a_turn_doubles_nothing():
    conversation = running("what is it?")
    say(conversation, "It is")
    conversation.load([*ENTRIES, {"role": "user", "text": "what is it?", "at": ""}])
    say(conversation, " a test")

    assert shown(conversation)[4:] == [("UserBlock", "what is it?"), ("ReplyBlock", "It is a test")]


def test_loss_of_the_daemon_keeps_what_it_has_not_got():
    conversation = running()
    conversation.submit("m2", "unsent", connected=True)
    conversation.lost()
    conversation.load([])

    assert conversation.waiting == (Queued("m2", "unsent", held=True),)
    assert conversation.idle


def test_a_reply_that_comes_again_after_a_restart_is_shown_once() -> None:
    """Issue 3, ledger: a reply of unknown fate is sent again with the same key."""
    conversation = Conversation("cli")
    for key in ("k1", "k1", "k2"):
        emit(conversation, "reply", message_id="m1", text=f"Hello {key}", model="m", key=key)

    assert [block.text for block in conversation.blocks if isinstance(block, ReplyBlock)] == ["Hello k1", "Hello k2"]


def test_a_turn_taken_up_after_a_restart_shows_its_question_once():
    """The daemon tells what runs before it answers with the history, which holds the question already."""
    conversation = running("count to thirty")
    conversation.lost()
    emit(conversation, "queue.changed", running="m1", waiting=[])
    conversation.load([{"role": "user", "text": "count to thirty"}])
    say(conversation, "One")

    assert shown(conversation) == [("UserBlock", "count to thirty"), ("ReplyBlock", "One")]
    assert conversation.running == "m1"
