"""What a word is, in every script: the index and the questions put to it are cut up here, in the same way.

A term is a run of a-z and 0-9 or of characters beyond ASCII, so none is ever an operator of the index's query language,
whatever was typed. Scripts that set no spaces become single characters and pairs of them; an emoji is a word; names of
code are cut at underscores, at capitals and at signs, and stay findable as one word too.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import pairwise

MOST_TERMS = 24  # of a question; the rest of a long one adds nothing but time
MOST_TERM_CHARS = 40

DENSE = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)  # Thai, Lao, Tibetan, Burmese, Hangul, Khmer, kana, Han
SIGNS = "\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001faff"

_ASCII = re.compile(r"[a-z0-9]+")
_MARKS = re.compile(
    "[\u00ad\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf-\u05c7\u064b-\u065f\u0670\u200b-\u200f\u2060\ufe00-\ufe0f"
    "\ufeff\U0001f3fb-\U0001f3ff]"
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_HUMPED = re.compile(r"[A-Za-z0-9]*(?:[a-z0-9][A-Z]|[A-Z][A-Z][a-z])[A-Za-z0-9]*")


@cache
def _any() -> re.Pattern[str]:
    """Compiled when first needed: it would take each start three milliseconds."""
    return re.compile(rf"([{DENSE}]+)|((?:[^\W_{DENSE}]|[\u0900-\u0dff])+|[{SIGNS}])")


def plain(text: str) -> str:
    """Return a text without what makes no difference: case, accents, width, what nobody sees."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFKD", text))).casefold()


def words(text: str) -> list[str]:
    """Return the words as they stand, characters and pairs where a script has no words, then the parts of names."""
    parts = [part for name in _HUMPED.findall(text) for part in _HUMP.sub(" ", name).lower().split()]
    text = plain(text)
    if text.isascii():
        return [word[:MOST_TERM_CHARS] for word in _ASCII.findall(text)] + parts
    found: list[str] = []
    for run, word in _any().findall(text):
        if run:
            found.extend(run)
            found.extend(map("".join, pairwise(run)))
        else:
            found.append(word[:MOST_TERM_CHARS])
    return found + parts


def asked(query: str) -> list[str]:
    """Return the different terms of a question in their order: pairs alone where there are pairs."""
    terms: dict[str, None] = {}
    for run, word in _any().findall(plain(query)):
        if len(run) > 1:
            terms.update(dict.fromkeys(map("".join, pairwise(run))))
        else:
            terms[run or word[:MOST_TERM_CHARS]] = None
    return [*terms][:MOST_TERMS]


def root(word: str) -> str:
    """Return about what the forms of an English word have in common; the index has its own, finer one."""
    for ending in ("ations", "ation", "ings", "ing", "ied", "ies", "ed", "es", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
