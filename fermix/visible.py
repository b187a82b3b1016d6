"""Foreign text as a person sees it: spelled out for approval prompts, or without what nobody can see for a model.

What is spelled is one line, holds nothing that a screen would hide, turn around or act upon, and is never cut.
"""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Letters and marks that are drawn as nothing; their categories do not say so.
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
_WORD = re.compile(r"\w+|\W")
_LIKE_LATIN = frozenset({"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})


def spelled(text: str) -> str:
    """Show control, direction, zero-width and odd space characters by their numbers, e.g. ⟨U+202E⟩; also letters that
    imitate plain ones: another script's inside a Latin word, and those made for mathematics or of full width.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_spelled_word, _WORD.findall(text)))


def only_seen(text: str) -> str:
    """Leave out what a reader of the text would not see: control, direction, zero-width, tag and private characters.

    Line ends and tabs stay, odd spaces become plain ones.
    """
    return text if text.isascii() and text.isprintable() else text.translate(_SEEN)


def fenced(text: str) -> str:
    """Put lines of spelled text into a Markdown block that they cannot end."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _spelled_word(word: str) -> str:
    foreign = _LIKE_LATIN if any(map(_is_latin, word)) else frozenset[str]()
    return "".join(_number(char) if _script(char) in foreign else _spelled(char) for char in word)


def _spelled(char: str) -> str:
    hidden = _is_unseen(char) or (unicodedata.category(char) == "Zs" and char != " ")
    return _number(char) if hidden or _imitates(char) else char


def _number(char: str) -> str:
    return f"⟨U+{ord(char):04X}⟩"


def _imitates(char: str) -> bool:
    """Say whether it is a letter or a digit that is only another form of a plain one."""
    plain = unicodedata.normalize("NFKC", char)
    return char != plain and len(plain) == 1 and plain.isascii() and plain.isalnum()


def _is_latin(char: str) -> bool:
    return char.isalpha() and (char.isascii() or _script(char) == "LATIN")


def _script(char: str) -> str:
    return unicodedata.name(char, "").partition(" ")[0]


def _is_unseen(char: str) -> bool:
    is_selector = unicodedata.name(char, "").startswith("VARIATION SELECTOR")
    return unicodedata.category(char) in _HIDDEN or char in _BLANK_LETTERS or is_selector


class _Seen(dict[int, str]):
    """What each character becomes, worked out once."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        odd = "\n" if unicodedata.category(char) in ("Zl", "Zp") else ""
        self[code] = odd if _is_unseen(char) else " " if unicodedata.category(char) == "Zs" else char
        return self[code]


_SEEN = _Seen({ord(char): char for char in "\n\t"})
