"""Search over a million stored messages, and how often it finds what was asked for.

The million rows are made from a seed: words by a law that a corpus of talk follows (the most frequent one is in three
of four messages), a tenth of the rows in Han. They are put in by SQL, then indexed by the daemon's own code without
its pauses.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.figures import Figure, p95
from bench.recall import score
from bench.recall.conversations import SHARES, Said, make
from fermix.agent.memory.history_writer import INSERT, OWNER_ID
from fermix.agent.memory.rows import stamp
from fermix.agent.memory.search import Search, index
from fermix.clock import SystemClock
from fermix.home import AGENT_ID
from fermix.store import Connection, Database, SqlValue
from fermix.workers import Workers

ROWS = 1_000_000
SEED = 7
WORDS = 50_000
RUNS = 40
WORDS_A_ROW = 12
ROWS_AT_ONCE = 20_000
BANDS = ((0, 10), (10, 300), (300, 5_000), (5_000, WORDS))
"""Words by their place in the order of frequency."""


def figures() -> Iterator[Figure]:
    yield from asyncio.run(_recall())
    yield from asyncio.run(_million())


async def _recall() -> list[Figure]:
    said, questions = make()
    theirs = score.plain(said, questions)
    with tempfile.TemporaryDirectory() as folder:
        async with _opened(Path(folder)) as (database, search):
            await database.run(lambda connection: _put(connection, map(_columns, said)))
            await _index(database)
            found = [[hit.number for hit in (await search.find(asked.text, score.AT)).hits] for asked in questions]
    ours = [int(not asked.answers.isdisjoint(numbers)) for asked, numbers in zip(questions, found, strict=True)]
    mean, low, high = score.difference(ours, theirs)
    kinds = [
        Figure(
            f"search.recall_{kind}",
            score.share([hit for hit, asked in zip(ours, questions, strict=True) if asked.kind == kind]),
            "%",
        )
        for kind in SHARES
    ]
    return [
        Figure("search.recall_plain", score.share(theirs), "% of 500 answers among the first 5, FTS5 bm25"),
        Figure("search.recall", score.share(ours), "%"),
        *kinds,
        Figure("search.recall_behind_plain", -mean, f"points ({-high:.1f} to {-low:.1f}, 95 %); goal -10", 0.0),
    ]


async def _million() -> list[Figure]:
    chance, words = random.Random(SEED), _vocabulary()
    with tempfile.TemporaryDirectory() as folder:
        async with _opened(Path(folder)) as (database, search):
            began_at = time.monotonic()
            texts = _texts(chance, words)
            for start in range(0, ROWS, ROWS_AT_ONCE):
                part = [
                    _row(f"s{number // 10_000}", "user", next(texts), "2026-01-02T03:04:05.678Z")
                    for number in range(start, start + ROWS_AT_ONCE)
                ]
                await database.run(lambda connection, part=part: _put(connection, part))
            stored_at = time.monotonic()
            await _index(database)
            built = [
                Figure("search.rows_stored", stored_at - began_at, "s"),
                Figure("search.rows_indexed", time.monotonic() - stored_at, "s for a million rows"),
            ]
            return built + [
                Figure(
                    name, p95([await _ms(search, query) for query in queries]), "ms p95 over a million messages", 50.0
                )
                for name, queries in _queries(chance, words)
            ]


async def _ms(search: Search, query: str) -> float:
    began_at = time.perf_counter()
    await search.find(query)
    return (time.perf_counter() - began_at) * 1000


def _queries(chance: random.Random, words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    for count in range(1, 5):
        for low, high in BANDS:
            yield (
                f"search.words_{count}_of_{low}_{high}",
                [" ".join(chance.choices(words[low:high], k=count)) for _ in range(RUNS)],
            )
        yield (
            f"search.words_{count}_mixed",
            [
                " ".join(chance.choice(words[low:high]) for low, high in chance.choices(BANDS, k=count))
                for _ in range(RUNS)
            ],
        )
    for count in range(1, 5):
        yield f"search.han_{count}", ["".join(_han(chance, count)) for _ in range(RUNS)]


def _vocabulary() -> list[str]:
    sounds = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    made = ("".join(parts) for length in (2, 3) for parts in itertools.product(sounds, repeat=length))
    words = list(itertools.islice(made, WORDS))
    random.Random(SEED).shuffle(words)
    return words


def _texts(chance: random.Random, words: Sequence[str]) -> Iterator[str]:
    weights = list(itertools.accumulate(1.0 / (place + 2.0) for place in range(len(words))))
    while True:
        drawn = chance.choices(words, cum_weights=weights, k=9_000 * WORDS_A_ROW)
        for start in range(0, len(drawn), WORDS_A_ROW):
            yield " ".join(drawn[start : start + WORDS_A_ROW])
            if start % (9 * WORDS_A_ROW) == 0:
                yield "".join(_han(chance, 12))


def _han(chance: random.Random, count: int) -> list[str]:
    return [chr(0x4E00 + int(chance.paretovariate(0.6)) % 4_000) for _ in range(count)]


@asynccontextmanager
async def _opened(folder: Path) -> AsyncGenerator[tuple[Database, Search]]:
    workers = Workers()
    async with Database.open(folder / "memory.db") as database:
        yield database, Search(database, workers, SystemClock())
    workers.close()


async def _index(database: Database) -> None:
    def all_of_it(connection: Connection) -> bool:
        return any([index.add_new(connection) for _ in range(50)][-1:])

    while await database.run(all_of_it):
        pass


def _put(connection: Connection, rows: Iterator[Sequence[SqlValue]] | Sequence[Sequence[SqlValue]]) -> None:
    connection.executemany(INSERT, rows)


def _columns(said: Said) -> Sequence[SqlValue]:
    return _row(said.chat, said.role, said.text, stamp(said.at))


def _row(chat: str, role: str, text: str, at: str) -> Sequence[SqlValue]:
    sender = "Jo" if role == "user" else ""
    return (AGENT_ID, OWNER_ID, "cli", chat, "root", 0, sender, role, "chat_message", text, "{}", at, None)
