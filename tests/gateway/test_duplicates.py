"""The same delivery again and again: many at once, after a restart, beside writes that fail, across a day and a clock
that goes backwards."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import pytest

from fermix.errors import NeedsOperator
from fermix.gateway.idempotency import MOST_KEYS, SeenKeys
from fermix.gateway.ledger import Entry, Ledger
from fermix.store import Connection, Database
from fermix.trust import Trust
from tests.fakes.channel import message
from tests.fakes.clock import START
from tests.gateway.conftest import Install
from tests.requirements import covers

T = TypeVar("T")

TASKS, KEYS = 50, 200
DAY_S = 24 * 3600


async def deliver(ledger: Ledger, ids: list[str]) -> Counter[str]:
    """Be one impatient platform: deliver each id, again after a failure; returns how often each was fresh."""
    fresh: Counter[str] = Counter()
    for id in ids:
        while True:
            try:
                fresh[id] += await ledger.accept(message("hi", id=id), Trust.OPERATOR) is not None
            except NeedsOperator:
                continue
            break
    return fresh


async def race(ledger: Ledger, chance: random.Random) -> Counter[str]:
    """Deliver every key from every task at once, each task in an order of its own."""
    ids = [f"m{number}" for number in range(KEYS)]
    async with asyncio.TaskGroup() as group:
        racers = [group.create_task(deliver(ledger, chance.sample(ids, KEYS))) for _ in range(TASKS)]
    return sum((racer.result() for racer in racers), Counter())


async def accepts(ledger: Ledger, id: str = "m1", **other: str) -> bool:
    return await ledger.accept(message("hi", id=id, **other), Trust.OPERATOR) is not None


@covers("idem.atomic")
async def test_of_ten_thousand_racing_deliveries_exactly_one_of_each_key_is_fresh(install: Install) -> None:
    """DLV-10: from 50 tasks; after a restart, and beside a ledger that is still open, none is."""
    chance = random.Random(1)
    async with install.ledger() as first:
        fresh = await race(first, chance)
        async with install.ledger() as beside:
            again = await race(beside, chance)
    async with install.ledger() as later:
        afterwards = await race(later, chance)

    assert fresh == {f"m{number}": 1 for number in range(KEYS)}
    assert (again.total(), afterwards.total()) == (0, 0)
    assert install.rows("SELECT count(*), count(DISTINCT message_id) FROM inbox") == [(KEYS, KEYS)]


async def test_two_processes_on_one_file_agree_which_delivery_is_the_first(install: Install) -> None:
    chance = random.Random(2)
    async with install.ledger() as one, install.ledger() as other, asyncio.TaskGroup() as group:
        races = [group.create_task(race(ledger, chance)) for ledger in (one, other)]

    assert sum((each.result() for each in races), Counter()) == {f"m{number}": 1 for number in range(KEYS)}


@covers("idem.forget-on-failed-start")
async def test_writes_that_fail_in_the_race_cost_no_message_and_double_none(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DLV-02: every fifth insert breaks after it was made; whoever was told so delivers again."""
    chance = random.Random(3)
    async with Database.open(install.path) as database:
        run = database.run

        async def unreliable(fn: Callable[[Connection], T], *, durable: bool = False) -> T:
            breaks = chance.random() < 0.2

            def job(connection: Connection) -> T:
                result = fn(connection)
                if breaks:
                    raise NeedsOperator("the disk is full", advice="free some space")
                return result

            return await run(job, durable=durable)

        monkeypatch.setattr(database, "run", unreliable)
        async with asyncio.timeout(20):
            fresh = await race(Ledger(database, install.clock), chance)

    assert fresh == {f"m{number}": 1 for number in range(KEYS)}
    assert install.rows("SELECT count(*) FROM inbox") == [(KEYS,)]


async def test_a_webhook_that_is_posted_from_everywhere_at_once_runs_one_turn(install: Install) -> None:
    """DLV-10: every copy is acknowledged, one is answered."""
    async with install.start() as life:
        update = message("hi", channel="chat", sender="1")
        async with asyncio.TaskGroup() as group:
            posts = [group.create_task(life.channel.webhook(update, life.gateway.ingest)) for _ in range(50)]
        await life.settled(1)

    assert {post.result() for post in posts} == {200}
    assert (life.agent.started, install.platform.texts()) == (["m1"], ["HI"])


@covers("idem.key")
async def test_an_id_is_unique_on_its_whole_platform_and_on_no_other(install: Install) -> None:
    """DLV-03: the same id in another chat or thread is the same message; on another channel it is another one."""
    async with install.ledger() as ledger:
        assert await accepts(ledger, channel="telegram", chat="a")
        assert not await accepts(ledger, channel="telegram", chat="b")
        assert not await accepts(ledger, channel="telegram", chat="a", thread="9")
        assert await accepts(ledger, channel="signal", chat="a")


@pytest.mark.parametrize("restart", [False, True])
async def test_a_clock_that_goes_backwards_forgets_nothing(install: Install, restart: bool) -> None:
    """Neither the cache nor the table takes a key for old because it comes from the future."""
    async with install.ledger() as ledger:
        assert await accepts(ledger)
        install.clock.advance(-3 * DAY_S)
        if not restart:
            assert not await accepts(ledger)
            assert await accepts(ledger, "m2")
            assert not await accepts(ledger, "m2")
    async with install.ledger() as ledger:
        assert not await accepts(ledger)


async def test_a_clock_that_comes_back_knows_what_was_accepted_meanwhile(install: Install) -> None:
    """The key of the wrong time stands first in the cache and is the youngest: it must not be taken for the oldest."""
    async with install.ledger() as ledger:
        install.clock.advance(2 * DAY_S)
        assert await accepts(ledger, "future")
        install.clock.advance(-2 * DAY_S)
        assert await accepts(ledger, "now")
        install.clock.advance(DAY_S - 1)
        assert not await accepts(ledger, "now")
        assert not await accepts(ledger, "future")


@covers("idem.ttl")
async def test_a_day_is_kept_to_the_second_over_a_purge_and_a_restart(install: Install) -> None:
    """A busy day in between purges what is older, and nothing else."""
    async with install.ledger() as ledger:
        ledger.settle(await _entry(ledger, "old"), "answered")
        install.clock.advance(1)
        ledger.settle(await _entry(ledger, "kept"), "answered")
        install.clock.advance(DAY_S - 1)
        for number in range(30):
            assert await accepts(ledger, f"busy{number}")
        assert not await accepts(ledger, "kept")
    async with install.ledger() as ledger:
        assert not await accepts(ledger, "kept")
        assert await accepts(ledger, "old")


async def test_what_has_not_settled_is_known_however_old_it_is(install: Install) -> None:
    """A message that still waits for its channel must not be accepted beside itself."""
    async with install.ledger() as ledger:
        assert await accepts(ledger)
        install.clock.advance(9 * DAY_S)
        assert not await accepts(ledger)


def test_the_cache_in_front_of_the_table_is_bounded() -> None:
    """R-13: the oldest keys go; the table still knows them."""
    seen = SeenKeys()
    for number in range(MOST_KEYS + 100):
        seen.add(("chat", str(number)), START)

    assert len(seen._seen) == MOST_KEYS
    assert not seen.has(("chat", "99"), START)
    assert seen.has(("chat", "100"), START)


def test_the_cache_in_front_of_the_table_ends_with_the_day() -> None:
    """Ingress and trust, idempotency: 24 hours. The table is not asked about what is known here."""
    seen = SeenKeys()
    seen.add(("chat", "1"), START)

    assert seen.has(("chat", "1"), START + timedelta(seconds=DAY_S - 1))
    assert not seen.has(("chat", "1"), START + timedelta(seconds=DAY_S))


async def _entry(ledger: Ledger, id: str) -> Entry:
    entry = await ledger.accept(message("hi", id=id), Trust.OPERATOR)
    assert entry is not None
    return entry
