from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.visible import fenced, spelled


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/jo/Fotos 2026", "/home/jo/Fotos 2026"),
        ("/home/jo/Büro/写真", "/home/jo/Büro/写真"),
        ("a\x1b[2Kb", "a⟨U+001B⟩[2Kb"),
        ("a\nb\tc\r", "a⟨U+000A⟩b⟨U+0009⟩c⟨U+000D⟩"),
        ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
        ("a\u200bb\u200dc\ufeff", "a⟨U+200B⟩b⟨U+200D⟩c⟨U+FEFF⟩"),
        ("a\u00a0b\u3000c", "a⟨U+00A0⟩b⟨U+3000⟩c"),
        ("a\u115f\u3164\u2800b", "a⟨U+115F⟩⟨U+3164⟩⟨U+2800⟩b"),
        ("a\ufe0f\U000e0101", "a⟨U+FE0F⟩⟨U+E0101⟩"),
        ("a\udcffb", "a⟨U+DCFF⟩b"),
        ("a\u2028b\x85c", "a⟨U+2028⟩b⟨U+0085⟩c"),
        ("c\u0430t \u0444\u043e\u0442\u043e \u03b1\u03b2", "c⟨U+0430⟩t \u0444\u043e\u0442\u043e \u03b1\u03b2"),
        ("\uff52\uff4d -\U0001d42b\U0001d41f \uff11", "⟨U+FF52⟩⟨U+FF4D⟩ -⟨U+1D42B⟩⟨U+1D41F⟩ ⟨U+FF11⟩"),
        ("g\u0456t.example, na\u00efve, 2\u202f\u20ac", "g⟨U+0456⟩t.example, na\u00efve, 2⟨U+202F⟩\u20ac"),
    ],
)
def test_what_a_screen_would_hide_is_spelled_out(text: str, shown: str) -> None:
    """INJ-07, R-26: the prompt shows every character of what will be done."""
    assert spelled(text) == shown


@given(st.text(alphabet=st.characters()))
def test_nothing_that_acts_on_a_screen_is_left(text: str) -> None:
    left = {unicodedata.category(char) for char in spelled(text)}

    assert not left & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert len(spelled(text)) >= len(text)


@given(st.text(alphabet="`a\n"))
def test_a_block_cannot_be_ended_from_within(text: str) -> None:
    """Markdown: a fence ends only at a line of at least as many backticks."""
    fence, *inside, last = fenced(text).split("\n")

    assert fence == last
    assert "\n".join(inside) == text
    assert not any(line.startswith(fence) for line in inside)
