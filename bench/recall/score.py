"""Recall at five, of the plain way and of a search that is given, with the interval of their difference."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing

from bench.recall.conversations import SEED, Question, Said

AT = 5
RESAMPLES = 2_000

Find = Callable[[str], Sequence[int]]
"""Returns the numbers of the best messages for a question, at most `AT`."""


def hits(questions: Sequence[Question], find: Find) -> list[int]:
    """Return 1 for each question that is answered among the first five, 0 for the others."""
    return [int(not question.answers.isdisjoint(find(question.text)[:AT])) for question in questions]


def plain(said: Sequence[Said], questions: Sequence[Question]) -> list[int]:
    """FTS5 as it comes: bm25, unicode61, any of the words."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize = 'unicode61')")
        connection.executemany(
            "INSERT INTO words (rowid, text) VALUES (?, ?)",
            [(number, line.text) for number, line in enumerate(said, 1)],
        )

        def find(text: str) -> list[int]:
            query = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", text))
            rows = connection.execute("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?", (query, AT))
            return [number for (number,) in rows]

        return hits(questions, find)


def difference(ours: Sequence[int], theirs: Sequence[int]) -> tuple[float, float, float]:
    """Return the mean difference in points and its 95 % interval, from paired resampling."""
    chance = random.Random(SEED)
    pairs = [100.0 * (mine - other) for mine, other in zip(ours, theirs, strict=True)]
    means = sorted(sum(chance.choices(pairs, k=len(pairs))) / len(pairs) for _ in range(RESAMPLES))
    return sum(pairs) / len(pairs), means[round(RESAMPLES * 0.025)], means[round(RESAMPLES * 0.975) - 1]


def share(found: Sequence[int]) -> float:
    return 100.0 * sum(found) / len(found)
