"""Which of the found messages come first. Pure; called on a worker thread.

Every term weighs the more the rarer it is. First all found rows are weighed by the terms they hold, then the text of
the best is read: words that stand together as they were asked, the share of the question that is covered, how old a row
is. Who asks wants the answer and not the question: a line that ends in a question passes its weight on to the next one.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fermix.agent.memory.search.index import NEWEST
from fermix.agent.memory.search.words import root, words

MOST_READ = 150  # texts of one search
SMALL_WEIGHT = 0.15  # of a word that only builds a sentence
ADJACENT = 0.3  # of two words' weight, when they stand as in the question
EXACT = 0.1  # of a word's weight, for the very form that was asked
PASSED_ON, KEPT = 0.9, 0.6  # of a question's weight: to the answer, and to itself
RECENT, RECENT_DAYS = 0.15, 60.0
TOOL = 0.6  # of its weight has what a tool returned

SMALL = frozenset(
    [
        "a",
        "about",
        "an",
        "and",
        "any",
        "are",
        "at",
        "be",
        "been",
        "by",
        "can",
        "could",
        "did",
        "do",
        "does",
        "for",
        "from",
        "get",
        "got",
        "had",
        "has",
        "have",
        "he",
        "her",
        "him",
        "his",
        "how",
        "i",
        "if",
        "in",
        "is",
        "it",
        "its",
        "me",
        "my",
        "of",
        "on",
        "or",
        "our",
        "she",
        "should",
        "so",
        "some",
        "tell",
        "than",
        "that",
        "the",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "us",
        "was",
        "we",
        "were",
        "what",
        "when",
        "where",
        "which",
        "who",
        "why",
        "will",
        "with",
        "would",
        "you",
        "your",
    ]
)


@dataclass(frozen=True, slots=True)
class Line:
    """A message as it is weighed. `after` is the number of the one before it when that is known, else 0."""

    number: int
    role: str
    text: str
    age_days: float
    after: int = 0

    @property
    def asks(self) -> bool:
        return self.role != "tool" and self.text.rstrip().endswith(("?", "？"))


def by_place(rows: Iterable[Sequence[object]], places: int) -> list[list[int]]:
    """Sort rows of (place, number) into one list for each place, the newest first."""
    lists: list[list[int]] = [[] for _ in range(places)]
    for place, number in rows:
        assert isinstance(place, int)
        assert isinstance(number, int)
        lists[place].append(number)
    return lists


def weigh(terms: Sequence[str], hits: Sequence[Sequence[int]], newest: int) -> list[float]:
    """Return a weight for each term, from how many messages hold it: counted, or judged by how close they stand."""
    weights = [math.log(1.0 + (newest + 0.5) / (_held(found, newest) + 0.5)) for found in hits]
    small = [term in SMALL for term in terms]
    if all(small):
        return weights
    return [weight * SMALL_WEIGHT if is_small else weight for weight, is_small in zip(weights, small, strict=True)]


def groups(terms: Sequence[str], hits: Sequence[Sequence[int]], newest: int, affordable: int) -> list[tuple[int, ...]]:
    """Say which terms (by place) are to be looked for together: their newest hits alone may miss where they meet.

    Only when the rarest of them is rare enough for that to be quick.
    """
    telling = [place for place, term in enumerate(terms) if term not in SMALL and hits[place]]
    ordered = sorted(telling, key=lambda place: _held(hits[place], newest))
    if len(ordered) < 2 or _held(hits[ordered[0]], newest) > affordable:
        return []
    if all(len(hits[place]) < NEWEST for place in ordered):
        return []
    pairs = [(ordered[0], other) for other in ordered[1:4]]
    return pairs if len(ordered) == 2 else [*pairs, tuple(ordered[:3])]


def promising(
    hits: Sequence[Sequence[int]], weights: Sequence[float], met: Mapping[tuple[int, ...], Sequence[int]]
) -> list[int]:
    """Return the rows worth reading, by the terms they are known to hold, the newest of equal ones first."""
    held: defaultdict[int, float] = defaultdict(float)
    known = [set(found) for found in hits]
    for found, weight in zip(hits, weights, strict=True):
        for number in found:
            held[number] += weight
    for group, found in met.items():
        for number in found:
            for place in group:
                if number not in known[place]:
                    known[place].add(number)
                    held[number] += weights[place]
    return [number for _, number in heapq.nlargest(MOST_READ, ((weight, number) for number, weight in held.items()))]


def best(lines: Sequence[Line], terms: Sequence[str], weights: Sequence[float], limit: int) -> list[int]:
    """Return the numbers of the best lines, the best first."""
    own = {line.number: _score(line, terms, weights) for line in lines}
    asking = {line.number for line in lines if line.asks}
    answered = {line.after for line in lines if line.after}
    final: dict[int, float] = {}
    for line in lines:
        score = own[line.number] * (KEPT if line.number in asking & answered else 1.0)
        passed = own.get(line.after, 0.0) * PASSED_ON if line.after in asking else 0.0
        final[line.number] = max(score, passed + 0.3 * score)
    top = heapq.nlargest(limit, ((score, number) for number, score in final.items() if score))
    return [number for _, number in top]


def _held(found: Sequence[int], newest: int) -> float:
    """Return in how many messages a term is, judged by the newest ones where there are more."""
    if len(found) < NEWEST:
        return float(len(found))
    return len(found) * newest / max(newest - found[-1] + 1, 1)


def _score(line: Line, terms: Sequence[str], weights: Sequence[float]) -> float:
    there = words(line.text)
    roots = {word: root(word) for word in there}
    standing = set(roots.values())
    total = covered = extra = 0.0
    for term, weight in zip(terms, weights, strict=True):
        total += weight
        if root(term) in standing:
            covered += weight
            extra += EXACT * weight if term in roots else 0.0
    if not covered:
        return 0.0
    pairs = {(roots[one], roots[other]) for one, other in pairwise(there)}
    for place in range(len(terms) - 1):
        if (root(terms[place]), root(terms[place + 1])) in pairs:
            extra += ADJACENT * min(weights[place], weights[place + 1])
    recency = 1.0 + RECENT * 2.0 ** (-line.age_days / RECENT_DAYS)
    return (covered + extra) * (0.5 + 0.5 * covered / total) * recency * (TOOL if line.role == "tool" else 1.0)
