"""What may be kept of a message, and that it comes back from the database as it went in."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from fermix.agent.memory.rows import TOO_DEEP, Checkpoint, Columns, Note, Row, cleaned, decode, encode
from fermix.agent.model import AssistantMessage, Image, Reasoning, ToolCall, ToolMessage, UserMessage, valid_text
from fermix.errors import Unusable
from tests.agent.memory.items import AT, items

PICTURE = Image("image/png", b"\x89PNG")


@pytest.mark.parametrize(
    "blank",
    [
        UserMessage(""),
        UserMessage(" \n\t\u2003"),
        AssistantMessage(""),
        AssistantMessage(" \n"),
        AssistantMessage("", reasoning=Reasoning("openai", "m", ({"id": "rs_1"},))),
        Note("  "),
    ],
)
def test_blank_is_never_kept(blank):
    """Reference 3, section 9.1: blank content is never stored, for any role."""
    assert cleaned(blank) is None


def test_a_picture_leaves_only_its_place():
    assert cleaned(UserMessage("", (PICTURE,))) == UserMessage("[image]")
    assert cleaned(UserMessage("look", (PICTURE, PICTURE))) == UserMessage("look\n[2 images]")
    assert cleaned(ToolMessage("aaaaaaaaa", "look", "", True, (PICTURE,))) == ToolMessage(
        "aaaaaaaaa", "look", "[image]", True
    )


def test_an_empty_result_still_answers_its_call():
    assert cleaned(ToolMessage("aaaaaaaaa", "shell", "\n", True)) == ToolMessage(
        "aaaaaaaaa", "shell", "(no output)", True
    )


def test_text_around_the_words_stays_as_it_was():
    assert cleaned(UserMessage("  indented\n")) == UserMessage("  indented\n")


@pytest.mark.parametrize(
    ("text", "kept"),
    [("plain ü 😀", "plain ü 😀"), ("\ud83d\ude00", "😀"), ("a\ud83d", "a\ufffd"), ("\ude00b\ud83d", "\ufffdb\ufffd")],
)
def test_surrogates_are_joined_or_replaced(text: str, kept: str):
    assert valid_text(text) == kept


def test_arguments_are_encoded_again_from_what_was_parsed():
    """PRV-09: what is stored is always valid on the wire."""
    call = ToolCall("aaaaaaaaa", "bad name!", {"a\ud800": ["\udfff", float("nan"), {"deep": float("inf")}]})

    kept = cleaned(AssistantMessage("", (call,)))

    assert kept == AssistantMessage(
        "", (ToolCall("aaaaaaaaa", "bad_name_", {"a\ufffd": ["\ufffd", None, {"deep": None}]}),)
    )


def test_arguments_nested_too_deeply_become_a_marker():
    nested: list = []
    for _ in range(5_000):
        nested = [nested]

    kept = cleaned(AssistantMessage("", (ToolCall("aaaaaaaaa", "shell", {"a": nested}),)))

    assert kept == AssistantMessage("", (ToolCall("aaaaaaaaa", "shell", {}, TOO_DEEP),))


@pytest.mark.parametrize(("name", "kept"), [("", "unnamed"), ("a" * 70, "a" * 64), ("mcp.x/y", "mcp_x_y"), ("é", "_")])
def test_a_name_that_a_wire_refuses_is_mended(name: str, kept: str):
    assert cleaned(ToolMessage("aaaaaaaaa", name, "x", False)) == ToolMessage("aaaaaaaaa", kept, "x", False)


@given(items)
def test_what_is_kept_comes_back_equal(item):
    """PRV-09: the row in memory and the row after a restart are the same, and its text is UTF-8."""
    kept = cleaned(item)
    if kept is None:
        return
    row = Row(kept, AT, sender="main", model="openai/gpt-5.5", guest=True)
    row = replace(row, outside=not isinstance(kept, Checkpoint))  # which says it of itself

    *texts, ledger_id = encode(row)
    columns = Columns(*(str(text).encode("utf-8").decode("utf-8") for text in texts), ledger_id=ledger_id)

    assert decode(columns) == row
    json.loads(columns.metadata_json, parse_constant=lambda name: pytest.fail(name))


def test_a_time_is_kept_in_milliseconds_utc():
    assert encode(Row(UserMessage("x"), AT)).created_at == "2026-01-02T03:04:05.678Z"


@pytest.mark.parametrize(
    "change",
    [
        {"metadata_json": "{"},
        {"metadata_json": "[]"},
        {"metadata_json": '{"model": 1}'},
        {"metadata_json": '{"tool_calls": {}}'},
        {"metadata_json": '{"tool_calls": [{"id": 1}]}'},
        {"metadata_json": '{"reasoning": "x"}'},
        {"created_at": "yesterday"},
        {"role": "tool"},
        {"kind": "unheard"},
    ],
)
def test_a_row_written_by_somebody_else_is_unusable_not_a_crash(change: dict[str, str]):
    good = encode(Row(AssistantMessage("x"), AT))

    with pytest.raises(Unusable):
        decode(good._replace(**change))
