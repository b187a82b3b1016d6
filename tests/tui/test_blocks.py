from __future__ import annotations

import pytest

from fermix.tui.blocks import PART_CHARS, split_text


@pytest.mark.parametrize("text", ["", "short", "word " * 5_000, "x" * 20_000, "[" * 20_000, "a\n\n" * 9_000])
def test_text_without_code_is_cut_and_nothing_is_lost(text: str):
    parts = split_text(text)

    assert text == "".join(parts)
    assert max(map(len, parts)) <= PART_CHARS


def test_cut_code_is_a_whole_fence_in_every_part():
    text = "Look:\n\n```python\n" + "".join(f"line_{number} = {number}\n" for number in range(1_000)) + "```\nEnd."
    parts = split_text(text)

    assert len(parts) > 3
    assert [part.count("```") % 2 for part in parts] == [0] * len(parts)
    assert all(part.startswith("```python\n") for part in parts[1:-1])
    assert [f"line_{number} =" in text for number in range(1_000)] == [True] * 1_000


def test_fence_with_an_endless_language_still_ends():
    text = "```" + "x" * 30_000 + "\n" + "y" * 30_000

    assert sum(map(len, split_text(text))) >= 60_000


def test_code_lines_all_survive_the_cut():
    lines = [f"value_{number}" for number in range(2_000)]
    joined = "\n".join(split_text("~~~\n" + "\n".join(lines) + "\n~~~\n"))

    assert lines == [line for line in joined.splitlines() if line.startswith("value_")]


def test_fence_that_was_closed_before_the_cut_is_not_opened_again():
    code = "```sh\nls\n```\n\n"
    first, *_ = split_text(code + "word " * 2_000)

    assert first.count("```") == 2
