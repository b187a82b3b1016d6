from __future__ import annotations

import pytest

from fermix.tui.visible import cut, exact, one_line, prose


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("plain [/bold] text", "plain [/bold] text"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x00b\x07c", "a␀b␇c"),
        ("cut\x1b[3", "cut␛[3"),
        ("one\r\ntwo\rthree", "one\ntwo␍three"),
        ("\ta", "    a"),
        ("lone \ud800 half", "lone \ufffd half"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("you\u202egnp.exe", "you⟨U+202E⟩gnp.exe"),
        ("👩‍👩‍👧 🇻🇳 你好 é", "👩‍👩‍👧 🇻🇳 你好 é"),
    ],
)
def test_prose_holds_no_control_character(raw: str, seen: str):
    """TUI-05: controls shown as symbols; graphemes stay whole."""
    assert seen == prose(raw)


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        ("ls \x1b[8m; rm -rf ~", "ls ␛[8m; rm -rf ~"),
        ("rm\u200b file", "rm⟨U+200B⟩ file"),
        ("a\u202eb", "a⟨U+202E⟩b"),
        ("pay\u200dpal", "pay⟨U+200D⟩pal"),
        ("plain", "plain"),
    ],
)
def test_what_runs_is_shown_with_everything_it_hides(raw: str, seen: str):
    """INJ-07: ANSI escapes, bidi controls and zero-width characters made visible."""
    assert seen == exact(raw)


def test_one_line_says_that_more_follows():
    assert one_line("first\nsecond", limit=80) == "first…"
    assert one_line("x" * 100, limit=10) == "x" * 10 + "…"
    assert one_line("  short  ", limit=80) == "short"


def test_cut_text_says_how_much_is_missing():
    assert cut("x" * 1_500, limit=10) == "xxxxxxxxxx… (+1,490 characters)"
    assert cut("short", limit=10) == "short"
