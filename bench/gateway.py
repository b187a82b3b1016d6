"""What it costs that nothing accepted is lost: one message on its way in, many of them, and each wait for the disk."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import aiohttp

from bench.figures import Figure, p50, p99
from bench.house import QUESTION, Endless, House, Quiet, message, opened
from bench.program import environment, running, until
from fermix.message import Message, Reply
from fermix.trust import Trust

T = TypeVar("T")

MESSAGES = 1_000
STOPS = 300
RATE_HZ = 300
SECONDS = 20
CONVERSATIONS = 200
SERVER = (sys.executable, "-m", "bench.webhook")
PATIENCE_S = 30.0


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        yield from asyncio.run(_waits(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        yield asyncio.run(_stops(Path(folder)))
    with tempfile.TemporaryDirectory() as folder:
        yield from webhook(Path(folder))


async def _waits(folder: Path) -> list[Figure]:
    """Time every wait of a message beside a bare commit, in turn, so that a busy disk meets all of them alike."""
    async with opened(folder) as house:
        with closing(_plain(folder / "plain.db")) as plain:
            await _round(house, plain, 0)  # only warms up
            rounds = [await _round(house, plain, number) for number in range(1, MESSAGES + 1)]
    commit, ingest, inbox, outbox, effect = (
        [seconds * 1000 for seconds in column] for column in zip(*rounds, strict=True)
    )
    return [
        Figure("gateway.full_commit", p50(commit), "ms"),
        Figure("gateway.ingest", p50(ingest), "ms"),
        Figure("gateway.ingest_p99", p99(ingest), "ms"),
        Figure("gateway.ingest_ratio", p50(ingest) / p50(commit), "times a bare FULL commit", 4.0),
        Figure("gateway.ingest_p99_ratio", p99(ingest) / p50(commit), "times a bare FULL commit", 20.0),
        Figure("gateway.wait_inbox_row", p50(inbox), "ms"),
        Figure("gateway.wait_outbox_row", p50(outbox), "ms"),
        Figure("gateway.wait_effect_mark", p50(effect), "ms"),
    ]


async def _round(house: House, plain: sqlite3.Connection, number: int) -> tuple[float, float, float, float, float]:
    """One bare commit, one message on its way to its lane, and the three waits of a turn by themselves."""
    ledger, alone = house.ledger, message(-1 - number, "alone")
    commit_s, _ = await _timed(lambda: _commit(plain, number))
    ingest_s, _ = await _timed(lambda: house.gateway.ingest(message(number, f"c{number}"), house.channel))
    await house.settled()
    inbox_s, entry = await _timed(lambda: ledger.accept(alone, Trust.OPERATOR))
    assert entry is not None, "a message was accepted twice"
    effect_s, _ = await _timed(lambda: ledger.effect(entry, "shell"))
    outbox_s, _ = await _timed(
        lambda: ledger.outgoing(entry, [QUESTION], settles="answered", model="m", answer=QUESTION)
    )
    ledger.settle(entry, "answered")
    await house.settled()
    return commit_s, ingest_s, inbox_s, outbox_s, effect_s


class Answered(Quiet):
    """Knows when something was sent."""

    def __init__(self) -> None:
        self.at = asyncio.Event()

    async def send(self, message: Message, reply: Reply, key: str) -> str:
        self.at.set()
        return key


async def _stops(folder: Path) -> Figure:
    """Time a `/stop` from its coming in until its answer leaves, each behind a turn that would never end."""
    async with opened(folder, Endless()) as house:
        taken_s = [await _stopped(house, number) for number in range(STOPS)]
    return Figure("gateway.stop_ack_p99", p99(taken_s) * 1000, "ms", 100.0)


async def _stopped(house: House, number: int) -> float:
    await house.gateway.ingest(message(2 * number, "c"), house.channel)
    while house.gateway.lanes.counts() != (1, 0):
        await asyncio.sleep(0)
    channel, typed = Answered(), message(2 * number + 1, "c", "/stop")
    began_at = time.perf_counter()
    await house.gateway.ingest(typed, channel)
    await channel.at.wait()
    taken_s = time.perf_counter() - began_at
    await house.settled()
    return taken_s


async def _timed(work: Callable[[], Awaitable[T]]) -> tuple[float, T]:
    began_at = time.perf_counter()
    result = await work()
    return time.perf_counter() - began_at, result


def _plain(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.executescript("pragma journal_mode=wal; pragma synchronous=full;")
    database.execute("create table message (id integer primary key, text text)")
    return database


async def _commit(plain: sqlite3.Connection, number: int) -> None:
    plain.execute("begin immediate")
    plain.execute("insert into message values (?, ?)", (number, QUESTION))
    plain.execute("commit")


def webhook(folder: Path) -> Iterator[Figure]:
    port, commits = folder / "port", folder / "commits"
    with running((*SERVER, str(folder)), environment(folder / "fermix")):
        until(lambda: port.exists() and port.read_text(encoding="ascii").endswith("\n"))
        taken_s, statuses = asyncio.run(_post_all(f"http://127.0.0.1:{port.read_text(encoding='ascii').strip()}/"))
    sent = RATE_HZ * SECONDS
    yield Figure("webhook.ack", p50(taken_s) * 1000, "ms")
    yield Figure("webhook.ack_p99", p99(taken_s) * 1000, "ms", 100.0)
    yield Figure("webhook.not_acknowledged", sent - statuses[200], "messages", 0.0)
    yield Figure("webhook.lost_or_doubled", wrong(folder / "fermix" / "memory.db"), "messages", 0.0)
    yield Figure("webhook.commits", int(commits.read_text(encoding="ascii")) / sent, "a message, its turn included")


async def _post_all(url: str) -> tuple[list[float], dict[int, int]]:
    """Send at the times of a seeded Poisson process, however long an answer takes: it counts from when it was due."""
    chance, taken_s, statuses = random.Random(3), [0.0] * 0, defaultdict[int, int](int)
    timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:

        async def post(number: int, due_at: float) -> None:
            body = {"number": number, "chat": f"c{chance.randrange(CONVERSATIONS)}", "text": QUESTION}
            async with session.post(url, json=body) as response:
                statuses[response.status] += 1
            taken_s.append(time.monotonic() - due_at)

        async with asyncio.TaskGroup() as group:
            due_at = time.monotonic()
            for number in range(RATE_HZ * SECONDS):
                due_at += chance.expovariate(RATE_HZ)
                await asyncio.sleep(due_at - time.monotonic())
                group.create_task(post(number, due_at))
    return taken_s, statuses


def wrong(path: Path) -> int:
    """Compare the ledger with what was sent: how many messages are not there exactly once, or have no last word."""
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("select message_id, count(*), min(outcome) from inbox group by message_id").fetchall()
    right = {name for name, count, outcome in rows if count == 1 and outcome == "answered"}
    wanted = {f"m{number}" for number in range(RATE_HZ * SECONDS)}
    return len(wanted ^ right)
