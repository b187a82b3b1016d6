"""A history is always sendable: for every list of rows, every cut of it, every interruption."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.agent.markers import BEGINNING, NOT_RUN, STOPPED, SUMMARY_BEGINS
from fermix.agent.memory.history import Entry, entries, is_dangling, sendable
from fermix.agent.memory.rows import Note, Row
from fermix.agent.model import AssistantMessage, ChatMessage, Reasoning, ToolCall, ToolMessage, UserMessage
from tests.agent.memory.items import AT, histories, rows_of
from tests.requirements import covers

ONE = ToolCall("aaaaaaaa1", "shell", {"command": "ls"})
TWO = ToolCall("aaaaaaaa2", "file_read", {"path": "a"})
THREE = ToolCall("aaaaaaaa3", "shell", {})


def result(call: ToolCall, text: str = "done", *, ok: bool = True) -> ToolMessage:
    return ToolMessage(call.id, call.name, text, ok)


def wire_problems(messages: Sequence[ChatMessage]) -> list[str]:
    """What some provider refuses with a 4xx: the sum of the strictest rules of all wires."""
    problems = encoding_problems(messages) + pairing_problems(messages)
    if messages and not isinstance(messages[0], UserMessage):
        problems.append("does not begin with the user")
    if messages and (not isinstance(messages[-1], AssistantMessage) or messages[-1].tool_calls):
        problems.append("does not end with the assistant")
    for before, message in itertools.pairwise(messages):
        if type(before) is type(message) and not isinstance(message, ToolMessage):
            problems.append("the same role twice in a row")
        if isinstance(before, ToolMessage) and isinstance(message, UserMessage):
            problems.append("a user's message straight after a result")
    for message in messages:
        if not message.text.strip() and not (isinstance(message, AssistantMessage) and message.tool_calls):
            problems.append("blank")
    return problems


def pairing_problems(messages: Sequence[ChatMessage]) -> list[str]:
    problems: list[str] = []
    seen: set[str] = set()
    waiting: list[ToolCall] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            expected = waiting.pop(0) if waiting else None
            if expected is None or (expected.id, expected.name) != (message.call_id, message.name):
                problems.append("a result that is not the next one called for")
        elif waiting:
            problems.append("a call without a result")
        if isinstance(message, AssistantMessage):
            waiting = list(message.tool_calls)
            problems += [f"bad or doubled id {call.id!r}" for call in waiting if not fresh(call.id, seen)]
            problems += [f"bad name {call.name!r}" for call in waiting if not re.fullmatch(r"[\w-]{1,64}", call.name)]
    return problems


def fresh(call_id: str, seen: set[str]) -> bool:
    new = call_id not in seen and re.fullmatch(r"[A-Za-z0-9]{9}", call_id) is not None
    seen.add(call_id)
    return new


def encoding_problems(messages: Sequence[ChatMessage]) -> list[str]:
    values: list[object] = [message.text for message in messages]
    for message in messages:
        if isinstance(message, AssistantMessage):
            values += [dict(call.arguments) for call in message.tool_calls]
            values += message.reasoning.items if message.reasoning else ()
        else:
            values.append([len(getattr(message, "images", ()))])
    try:
        json.dumps(values, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError as error:
        return [str(error)]
    return []


@given(histories)
def test_any_history_can_be_sent(rows: list[Row]):
    """CTX-01, PRV-09: whatever is stored, every provider takes it."""
    assert wire_problems(sendable(rows)) == []


@given(histories, st.data())
def test_any_cut_of_any_history_can_be_sent(rows: list[Row], data: st.DataObject):
    """CTX-01: the kept tail has no orphan call and no orphan result, wherever it is cut."""
    start = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(start, len(rows)))

    assert wire_problems(sendable(rows[start:end])) == []


@given(histories)
def test_no_word_of_a_user_or_an_assistant_is_lost(rows: list[Row]):
    sent = sendable(rows)
    said = "\n".join(message.text for message in sent if isinstance(message, AssistantMessage))

    asked = [row.item.text for row in rows if isinstance(row.item, UserMessage)]
    assert [
        m.text for m in sent if isinstance(m, UserMessage) and not m.text.startswith((BEGINNING, SUMMARY_BEGINS))
    ] == asked
    for row in rows:
        if isinstance(row.item, AssistantMessage | Note):
            assert row.item.text in said


@given(histories, histories)
def test_a_longer_history_begins_with_the_same_bytes(rows: list[Row], later: list[Row]):
    """Prompt caching: what was sent up to a closed turn is sent again unchanged."""
    closed = rows_of(*(row.item for row in rows), Note("closed"), UserMessage("next"))

    assert sendable([*closed, *later])[: len(sendable(closed)) - 1] == sendable(closed)[:-1]


def test_sixty_messages_with_calls_can_be_cut_at_every_index():
    """CTX-01 as written: history of 60 messages with tool calls; cut at every index."""
    stored: list = []
    for number in range(10):
        calls = tuple(ToolCall(f"{number:08d}{letter}", "shell", {}) for letter in "ab")
        stored += [
            UserMessage(f"question {number}"),
            AssistantMessage("let me look", calls),
            *map(result, calls),
            AssistantMessage(f"answer {number}"),
            Note("noted"),
        ]
    rows = rows_of(*stored)
    assert len(rows) == 60

    for cut in range(61):
        assert wire_problems(sendable(rows[cut:])) == []
        assert wire_problems(sendable(rows[:cut])) == []


def test_a_healthy_history_is_sent_as_it_is():
    reasoning = Reasoning("anthropic", "m", ({"type": "thinking", "signature": "s"},))
    stored = (
        UserMessage("a"),
        AssistantMessage("", (ONE, TWO), reasoning),
        result(ONE),
        result(TWO, "no such file", ok=False),
        AssistantMessage("b"),
    )

    assert sendable(rows_of(*stored)) == stored


def test_an_interrupted_batch_is_closed_with_not_run_results():
    """CTX-02: three parallel calls, one result; the turn died, the user asks again."""
    stored = (UserMessage("a"), AssistantMessage("", (ONE, TWO, THREE)), result(TWO), UserMessage("b"))

    assert sendable(rows_of(*stored)) == (
        UserMessage("a"),
        AssistantMessage("", (ONE, TWO, THREE)),
        ToolMessage(ONE.id, ONE.name, NOT_RUN, False),
        result(TWO),
        ToolMessage(THREE.id, THREE.name, NOT_RUN, False),
        AssistantMessage(STOPPED),
        UserMessage("b"),
        AssistantMessage(STOPPED),
    )


def test_result_of_a_call_through_the_bridge_keeps_the_name_of_its_tool():
    """R-49: a later turn judges by it whether the words came from outside or from this machine."""
    wrapped = ToolCall("wrapped01", "tool_call", {"name": "shell", "arguments": {}})
    stored = (
        UserMessage("a"),
        AssistantMessage("", (wrapped,)),
        ToolMessage("wrapped01", "shell", "out", True),
        AssistantMessage("b"),
    )

    assert sendable(rows_of(*stored)) == stored


def test_a_late_result_of_an_earlier_turn_is_not_taken_into_the_next():
    """CTX-03: pending ids belong to one turn."""
    stored = (
        UserMessage("a"),
        AssistantMessage("", (ONE,)),
        UserMessage("b"),
        result(ONE, "late"),
        AssistantMessage("", (TWO,)),
        result(ONE, "later"),
        result(TWO, "right"),
        result(TWO, "again"),
        AssistantMessage("c"),
    )

    results = [m for m in sendable(rows_of(*stored)) if isinstance(m, ToolMessage)]

    assert results == [ToolMessage(ONE.id, ONE.name, NOT_RUN, False), result(TWO, "right")]


def test_a_call_id_used_twice_is_replaced_in_call_and_result():
    stored = (
        UserMessage("a"),
        AssistantMessage("", (ONE,)),
        result(ONE, "first"),
        AssistantMessage("", (ONE,)),
        result(ONE, "second"),
        AssistantMessage("b"),
    )

    sent = sendable(rows_of(*stored))

    again = sent[3].tool_calls[0].id
    assert again != ONE.id
    assert sent[4] == ToolMessage(again, "shell", "second", True)
    assert sendable(rows_of(*stored)) == sent


def test_a_cut_that_begins_with_the_assistant_says_so():
    assert sendable(rows_of(AssistantMessage("a job's report"))) == (
        UserMessage(BEGINNING),
        AssistantMessage("a job's report"),
    )


def test_a_note_after_an_answer_joins_it_and_keeps_its_reasoning():
    reasoning = Reasoning("anthropic", "m", ({"type": "thinking", "signature": "s"},))
    later = Reasoning("anthropic", "m", ({"type": "thinking", "signature": "t"},))

    first = sendable(rows_of(UserMessage("a"), AssistantMessage("b", (), reasoning), Note("c")))
    second = sendable(rows_of(UserMessage("a"), AssistantMessage("b", (), reasoning), AssistantMessage("c", (), later)))

    assert first == (UserMessage("a"), AssistantMessage("b\n\nc", (), reasoning))
    assert second == (UserMessage("a"), AssistantMessage("b\n\nc", (), later))


def test_a_blank_row_in_an_old_file_is_not_replayed():
    """Reference 3, section 12, kind 5: one blank row made a provider refuse every later turn."""
    rows = [Row(UserMessage("a"), AT), Row(AssistantMessage(" "), AT), Row(UserMessage("\n"), AT), Row(Note(""), AT)]

    assert sendable(rows) == (UserMessage("a"), AssistantMessage(STOPPED))


def test_an_empty_history_sends_nothing():
    assert sendable([]) == ()


@pytest.mark.parametrize(
    ("stored", "dangling"),
    [
        ((), False),
        ((UserMessage("a"),), True),
        ((UserMessage("a"), AssistantMessage("b")), False),
        ((UserMessage("a"), AssistantMessage("b", (ONE,))), True),
        ((UserMessage("a"), AssistantMessage("b", (ONE,)), result(ONE)), True),
        ((UserMessage("a"), Note("stopped")), False),
    ],
)
def test_a_turn_without_an_answer_dangles(stored: tuple, dangling: bool):
    assert is_dangling(rows_of(*stored)) is dangling


@covers("history.restored")
def test_entries_show_each_call_where_its_result_stands():
    rows = [
        Row(UserMessage("a"), AT),
        Row(AssistantMessage("let me look", (ONE, TWO)), AT, model="openai/gpt-5.5"),
        Row(result(ONE), AT),
        Row(result(TWO, "gone", ok=False), AT),
        Row(AssistantMessage("", (THREE,)), AT, model="openai/gpt-5.5"),
        Row(Note("stopped"), AT),
        Row(result(THREE, "cut off from its call"), AT),
    ]

    assert entries(rows) == (
        Entry("user", "a", AT),
        Entry("assistant", "let me look", AT, model="openai/gpt-5.5"),
        Entry("tool", "done", AT, tool="shell", arguments='{"command": "ls"}'),
        Entry("tool", "gone", AT, tool="file_read", arguments='{"path": "a"}', ok=False),
        Entry("note", "stopped", AT),
        Entry("tool", "cut off from its call", AT, tool="shell", arguments="{}"),
    )
