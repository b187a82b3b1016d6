from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fermix.gateway.text import Measure, pieces, split
from tests.fakes.channel import utf16_units

PARTS = (
    "word ", "One sentence. ", "\n", "\n\n", "## Head\n", "As follows:\n", "```\n", "```py\n", "~~~\n", "**", "~~",
    "`", "``", "\U0001f600", "e\u0301", "\U0001f468\u200d\U0001f469", "\U0001f1e9\U0001f1ea", "\r\n", "---\n",
    "世界", " ", "x" * 40, "[link](https://example.org/a)", "```one line```", "    ```\n",
)  # fmt: skip
MARKDOWN = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)
TEXTS = st.one_of(MARKDOWN, st.text(max_size=200))


def utf8_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def open_fences(chunk: str) -> int:
    """Count fences that a chunk opens and does not close, as a reader of Markdown does."""
    fence = ""
    for line in chunk.split("\n")[:-1]:
        bare = line.strip()
        if not fence and (opened := re.match(r"(`{3,})[^`]*$|(~{3,})", bare)):
            fence = opened[1] or opened[2]
        elif fence and bare.startswith(fence) and not bare.strip(fence[0]):
            fence = ""
    last = chunk.split("\n")[-1].strip()
    return int(bool(fence) and not (last.startswith(fence) and not last.strip(fence[0])))


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(4, 120), st.sampled_from((len, utf16_units, utf8_bytes)))
def test_every_chunk_fits_and_nothing_is_lost(text: str, limit: int, measure: Measure) -> None:
    """TGM-06, TGM-07, TGM-09, TGM-10, DSC-07: any text, any limit, any unit; added closers are measured too."""
    found = list(pieces(text, limit, measure))

    assert "".join(piece.source for piece in found) == text
    assert all(measure(piece.text) <= limit for piece in found)
    assert all(piece.source for piece in found)


@settings(max_examples=200, deadline=None)
@given(MARKDOWN)
@example("word " * 9 + "~~~\n```py\n    ```\nOne sentence. ~~~\n")
@example("word " * 5 + f"**## Head\n```\n```\n**{'x' * 40}")
@example("word " * 3 + f"**## Head\n    ```\n    ```\n**{'x' * 40}")
@example("word ```\n" + "word " * 3 + "[link](https://example.org/a)" * 2 + "    ```\n")
@example("word word One sentence. `One sentence. ``\n`" + "x" * 40)
@example("word " * 7 + f"`{'x' * 40}\n``\n`")
@example("~~~~" + "word " * 14 + "\n```\n")
def test_with_room_enough_every_chunk_is_balanced_by_itself(text: str) -> None:
    """TGM-05: closed at its end, opened again in the next."""
    for chunk in split(text, 80, len):
        assert open_fences(chunk) == 0


@settings(max_examples=100, deadline=None)
@given(MARKDOWN, st.integers(20, 80), st.integers(0, 400))
def test_cutting_may_begin_anywhere(text: str, limit: int, start: int) -> None:
    assert "".join(piece.source for piece in pieces(text, limit, len, start)) == text[start:]


def test_what_fits_stays_as_it_is() -> None:
    assert split("  One.\n\nTwo.\n", 100, len) == ["  One.\n\nTwo.\n"]
    assert split("x" * 5_000, None, len) == ["x" * 5_000]


@pytest.mark.parametrize("blank", ["", " ", "\n\n", " " * 5_000])
def test_blanks_make_no_message(blank: str) -> None:
    assert split(blank, 100, len) == []


def test_the_ladder_prefers_headings_then_paragraphs_then_lines_then_sentences_then_words() -> None:
    """Reference 3, section 4.4."""
    assert split("Some words.\n\nMore.\n\n## Next\nText.", 31, len) == ["Some words.\n\nMore.", "## Next\nText."]
    assert split("Some words.\n\nMore words.\nLast.", 28, len) == ["Some words.", "More words.\nLast."]
    assert split("Some words, more\nwords. Last.", 24, len) == ["Some words, more", "words. Last."]
    assert split("A first one. And another one.", 20, len) == ["A first one.", "And another one."]
    assert split("one two three four", 10, len) == ["one two", "three four"]


def test_a_message_never_ends_with_what_leads_on() -> None:
    assert split("A line of text.\n\nThe steps are:\n\nfirst, second, third", 45, len) == [
        "A line of text.",
        "The steps are:\n\nfirst, second, third",
    ]
    assert split("A line of text.\n\n# Title\n\nfirst, second, third", 34, len)[0] == "A line of text."


def test_a_rule_at_the_end_of_a_message_is_left_out() -> None:
    assert split("Before it all.\n\n---\n\nAfter the rule.", 24, len) == ["Before it all.", "After the rule."]


def test_a_code_block_moves_whole_to_the_next_message() -> None:
    code = "```py\na = 1\n\nb = 2\n```"

    assert split(f"Some words before it.\n\n{code}", 40, len) == ["Some words before it.", code]


def test_a_long_code_block_is_closed_and_opened_again_with_its_language() -> None:
    """TGM-11: a tag with `+` keeps its content and its name."""
    code = "```c++\n" + "\n".join(f"line{number};" for number in range(9)) + "\n```\n"
    found = split(code, 40, len)

    assert all(chunk.startswith("```c++\nline") and chunk.rstrip().endswith("\n```") for chunk in found)
    assert [line for chunk in found for line in chunk.split("\n") if line.startswith("line")] == [
        f"line{number};" for number in range(9)
    ]


def test_the_closer_is_reserved() -> None:
    """DSC-07: 1,998 characters inside an open fence, then the closer."""
    found = split("```\n" + "x" * 1_994 + "\n```", 2_000, len)

    assert [len(chunk) <= 2_000 and open_fences(chunk) == 0 for chunk in found] == [True, True]
    assert sum(chunk.count("x") for chunk in found) == 1_994


def test_a_block_of_one_endless_line_ends() -> None:
    """TGM-09: also with a body that begins with a space and a limit of the fence's own length."""
    for limit in (3, 4, 8, 9, 100, 4_096):
        found = list(pieces("```\n " + "y" * 9_000 + "\n```", limit, len))

        assert sum(piece.source.count("y") for piece in found) == 9_000
        assert all(len(piece.text) <= limit for piece in found)


def test_emphasis_over_a_cut_is_closed_and_opened_again() -> None:
    """TGM-05."""
    assert split("**bold start of it\n\nand the end**", 24, len) == ["**bold start of it**", "**and the end**"]
    assert split("run `one two three four` now", 16, len) == ["run `one two`", "`three four` now"]


def test_stars_that_are_no_emphasis_stay_alone() -> None:
    assert split("take **kwargs and more words\nthen 2 ** 3 and end", 32, len) == [
        "take **kwargs and more words",
        "then 2 ** 3 and end",
    ]


def test_one_line_between_fences_is_no_block() -> None:
    """TGM-11: the first word of the body is not a language."""
    assert split("```one line``` and some text\nmore text", 30, len) == ["```one line``` and some text", "more text"]


def test_a_link_is_not_torn() -> None:
    assert split("look at [the page](https://example.org) now", 38, len) == [
        "look at",
        "[the page](https://example.org) now",
    ]


def test_characters_of_several_parts_are_not_torn() -> None:
    """TGM-06: 2,100 emoji count 4,200 units; no cut inside a pair, a family, an accent or a flag."""
    assert [utf16_units(chunk) for chunk in split("\U0001f600" * 2_100, 4_096, utf16_units)] == [4_096, 104]
    for whole in (
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "e\u0301",
        "\U0001f1e9\U0001f1ea",
        "\U0001f44d\U0001f3fd",
    ):
        found = split(whole * 50, 40, utf16_units)

        assert "".join(found) == whole * 50
        assert all(chunk == whole * (len(chunk) // len(whole)) for chunk in found)


def test_the_join_of_the_chunks_is_the_input() -> None:
    """TGM-07: a limit in units is never used as an index of characters."""
    found = split("\U0001f600" * 5_000, 3_996, utf16_units)

    assert "".join(found) == "\U0001f600" * 5_000
    assert max(utf16_units(chunk) for chunk in found) == 3_996


def test_a_limit_below_one_character_is_an_error() -> None:
    with pytest.raises(ValueError, match="limit of 1"):
        split("\U0001f600", 1, utf16_units)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["\U0001f1e6", "~~", "`a` ", "`\n", "\n", "**a** ", "[a](", "```\n", "e\u0301"])
def test_a_long_text_of_one_odd_thing_takes_no_longer_than_any_other(unit: str) -> None:
    """The daemon stands still while a text is cut, and a model that repeats itself can say anything for long."""
    text = unit * (300_000 // len(unit))

    assert "".join(piece.source for piece in pieces(text, 4_000, len)) == text


def test_ever_longer_runs_of_ticks_take_no_longer_than_any_other_text() -> None:
    text = " a ".join("`" * length for length in range(1, 450))

    assert "".join(piece.source for piece in pieces(text, 4_000, len)) == text


def test_emphasis_inside_emphasis_is_opened_again_in_its_order() -> None:
    first, second = split(f"**bold ~~{'word ' * 20}~~ bold**", 80, len)

    assert (first[:9], first[-4:]) == ("**bold ~~", "~~**")
    assert (second[:4], second[-9:]) == ("**~~", "~~ bold**")
