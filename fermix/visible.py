"""Foreign text spelled out, so that a person who must judge it sees every character. For approval prompts.

What comes out is one line, holds nothing that a screen would hide, turn around or act upon, and is never cut.
"""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters and marks that are drawn as nothing; their categories do not say so.
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")


def spelled(text: str) -> str:
    """Show control, direction, zero-width and odd space characters by their numbers, e.g. ⟨U+202E⟩."""
    return text if text.isascii() and text.isprintable() else "".join(map(_spelled, text))


def fenced(text: str) -> str:
    """Put lines of spelled text into a Markdown block that they cannot end."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _spelled(char: str) -> str:
    category = unicodedata.category(char)
    hidden = category in _HIDDEN or (category == "Zs" and char != " ") or char in _BLANK_LETTERS
    return f"⟨U+{ord(char):04X}⟩" if hidden or unicodedata.name(char, "").startswith("VARIATION SELECTOR") else char
