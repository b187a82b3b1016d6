"""Find facts among those in memory, by key or by words. Pure; at most some thousands are looked at.

A word counts where it stands whole, begins a word, or stands inside the text, in this order; so scripts without
spaces and parts of names are found as well. Case and accents make no difference. No text is ever a query language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Literal

from fermix.agent.memory.facts.fact import Fact, checked_key

Breadth = Literal["current", "owner", "all"]

MOST_WORDS = 32  # of a query
WHOLE, BEGINNING, INSIDE = 4, 2, 1

_WORD = re.compile(r"\w+")


def within(facts: Sequence[Fact], breadth: Breadth, session: str) -> list[Fact]:
    """Return what holds here ("current"), in every conversation ("owner"), or anywhere ("all")."""
    if breadth == "all":
        return list(facts)
    here = session if breadth == "current" else None
    return [
        fact for fact in facts
        if fact.place.lasting or (fact.place.scope == "conversation" and fact.place.scope_id == here)
    ]  # fmt: skip


def by_key(facts: Sequence[Fact], key: str) -> list[Fact]:
    """Return the facts of one key, however it is spelled. Raises: Unusable for what is no key."""
    wanted = checked_key(key)
    return [fact for fact in facts if fact.key == wanted]


def by_words(facts: Sequence[Fact], query: str) -> list[Fact]:
    """Return the facts that hold any word of a query, the best first, then as they came; none for no word."""
    words = [*dict.fromkeys(_WORD.findall(_plain(query)))][:MOST_WORDS]
    scored = [(fact, _score(words, fact)) for fact in facts]
    return [fact for fact, score in sorted(scored, key=lambda found: -found[1]) if score]


def _score(words: Sequence[str], fact: Fact) -> int:
    """Look first for what most facts do not hold at all."""
    text = _plain(f"{fact.category} {fact.key.replace('_', ' ')} {fact.value}")
    inside = [word for word in words if word in text]
    found = set(_WORD.findall(text)) if inside else set[str]()
    return sum(_weight(word, found) for word in inside)


def _weight(word: str, found: set[str]) -> int:
    if word in found:
        return WHOLE
    return BEGINNING if any(one.startswith(word) for one in found) else INSIDE


def _plain(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKD", text.casefold()).translate(_PLAIN)


class _Plain(dict[int, str]):
    """What each character becomes, worked out once: an accent nothing, any other itself."""

    def __missing__(self, code: int) -> str:
        self[code] = "" if unicodedata.category(chr(code)) == "Mn" else chr(code)
        return self[code]


_PLAIN = _Plain()
