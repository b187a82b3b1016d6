"""The part of a found message that is shown: one line around the most telling words of the question."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from fermix.agent.memory.search.words import DENSE, plain, root

CHARS = 300
BEFORE = 80  # of it stand before the words that were found


@cache
def _piece() -> re.Pattern[str]:
    """Compiled when first needed, like those of `words.py`."""
    return re.compile(rf"[{DENSE}]+|[^\W_{DENSE}]+")


def snippet(text: str, terms: Sequence[str], weights: Sequence[float]) -> str:
    """Return at most about 300 characters of a text in one line, with … where something is left out."""
    line = " ".join(text.split())
    if len(line) <= CHARS:
        return line
    start = max(0, _place(line, terms, weights) - BEFORE)
    start = line.rfind(" ", max(0, start - 20), start) + 1 or start
    end = min(len(line), start + CHARS)
    return f"{'…' if start else ''}{line[start:end].strip()}{'…' if end < len(line) else ''}"


def _place(line: str, terms: Sequence[str], weights: Sequence[float]) -> int:
    """Return where the window with the most weight begins."""
    wanted = dict(zip(map(root, terms), weights, strict=True))
    found: list[tuple[int, str]] = []
    for piece in _piece().finditer(line):
        word = plain(piece.group())
        if root(word) in wanted:
            found.append((piece.start(), root(word)))
        elif not word.isascii():
            found.extend((piece.start() + word.find(term), term) for term in wanted if term in word)
    best, best_weight = 0, 0.0
    for start, _ in found:
        weight = sum(wanted[term] for term in {term for at, term in found if start <= at < start + CHARS - BEFORE})
        if weight > best_weight:
            best, best_weight = start, weight
    return best
