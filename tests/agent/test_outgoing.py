from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.agent.outgoing import Outgoing, Veil, outgoing

PIECES = st.lists(
    st.sampled_from(
        [
            "<tool_call>",
            "</tool_call>",
            "<",
            "<fermix-",
            "untrusted>",
            "</fermix-untrusted>",
            "```",
            "`",
            "\n",
            " ",
            "a",
            "[failed before",
            " an answer]",
        ]
    ),
    max_size=30,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('<tool_call>{"name": "shell", "arguments": {"command": "ls"}}</tool_call>', "shell"),
        ('<function_calls>\n<invoke name="file_read">\n</invoke>\n</function_calls>', "file_read"),
        ("<function=glob_search>{}</function>", "glob_search"),
        ("<tool_call>broken", "tool_call"),
    ],
)
def test_call_written_as_text_becomes_a_failed_call(text: str, name: str) -> None:
    """PRV-30: recognised as a failed tool call, never delivered as it is."""
    parted = outgoing(f"Let me look.\n{text}\nThe answer is 4.")

    assert parted.text == "Let me look."
    assert [name] == [call.name for call in parted.calls]
    assert parted.calls[0].problem is not None
    assert len(parted.calls[0].id) == 9


@pytest.mark.parametrize(
    "text",
    [
        "Models write <tool_call> before a call.",
        "```xml\n<tool_call>\n{}\n</tool_call>\n```\nThat is how it looks.",
        "a < b\n<b>bold</b>\n<function",
        "manage_memories(search) was called twice.",
    ],
)
def test_prose_and_code_about_calls_stay_whole(text: str) -> None:
    """CTX-14: only structured parts are touched."""
    assert Outgoing(text, (), ()) == outgoing(text)


def test_echoed_internal_element_is_left_out_and_named() -> None:
    """DLV-13: known internal markers are dropped, and it is recorded that they were."""
    text = 'Here:\n<fermix-untrusted source="web">\nsecret recap\n</fermix-untrusted>\nIt is sunny.'

    assert Outgoing("Here:\nIt is sunny.", (), ("fermix-untrusted",)) == outgoing(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[failed before an answer]", ""),
        (" [stopped before an answer] \n", ""),
        ("[Fermix stopped before an answer]\nIt is 4.", "It is 4."),
        ("It says [failed before an answer].", "It says [failed before an answer]."),
        ("```\n[failed before an answer]\n```", "```\n[failed before an answer]\n```"),
    ],
)
def test_a_marker_of_ours_is_no_answer(text: str, shown: str) -> None:
    """DLV-13: a model that reads it in the history says it after us, as if it were its reply."""
    parted = outgoing(text)

    assert parted.text == shown
    assert bool(parted.dropped) == (shown in ("", "It is 4."))


@given(PIECES)
def test_stream_shows_the_same_however_it_is_cut(pieces: list[str]) -> None:
    """PRV-30: what streams to a terminal is what the whole answer would show, at any chunk boundary."""
    chunked, whole, single = Veil(), Veil(), Veil()
    text = "".join(pieces)

    by_pieces = "".join(chunked.feed(piece) for piece in pieces) + chunked.finish()
    by_characters = "".join(single.feed(character) for character in text) + single.finish()

    assert by_pieces == by_characters == whole.feed(text) + whole.finish()


def test_plain_text_streams_at_once() -> None:
    """A held-back token is a frozen screen: only what may become an element waits."""
    veil = Veil()

    shown = [veil.feed(part) for part in ("Hello", " <b", "\n", "<", "b>", "x")]

    assert shown == ["Hello", " <b", "\n", "", "<b>", "x"]
