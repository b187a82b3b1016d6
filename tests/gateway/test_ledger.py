"""The ledger on a real database file: what is written, what is known again, what a start finds."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from fermix.errors import NeedsOperator
from fermix.gateway.ledger import Entry, Ledger, Outgoing
from fermix.message import Attachment, LocalOrigin, Media, Message
from fermix.store import Connection, Database
from fermix.trust import Trust
from tests.fakes.channel import message
from tests.fakes.clock import START, ManualClock
from tests.requirements import covers


class Disk:
    """A database file that can be opened again, as after a restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Ledger]:
        async with asyncio.timeout(30), Database.open(self.path) as database:
            yield Ledger(database, self.clock)

    def rows(self, query: str) -> list[tuple]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "memory.db")


async def accepted(ledger: Ledger, wanted: Message | None = None) -> Entry:
    entry = await ledger.accept(wanted or message("hi"), Trust.OPERATOR)
    assert entry is not None
    return entry


@covers("idem.webhook.ack-not-rerun", "idem.key")
async def test_the_second_copy_of_a_message_is_known(disk: Disk) -> None:
    """DLV-03, R-12: seen on (channel, the platform's id), whatever else differs."""
    async with disk.open() as ledger:
        await accepted(ledger)

        assert await ledger.accept(message("hi", chat="elsewhere"), Trust.GUEST) is None
        assert await ledger.accept(message("hi", channel="telegram"), Trust.GUEST) is not None
        assert await ledger.accept(message("hi", id="m2"), Trust.OPERATOR) is not None


@covers("idem.process-local")
async def test_a_restart_knows_what_was_accepted(disk: Disk) -> None:
    """DLV-03, R-12: the spec lets a restart forget; ours does not."""
    async with disk.open() as ledger:
        await accepted(ledger)
    async with disk.open() as ledger:
        assert await ledger.accept(message("hi"), Trust.OPERATOR) is None


@covers("idem.atomic")
async def test_of_many_racers_exactly_one_is_fresh(disk: Disk) -> None:
    async with disk.open() as ledger, asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(ledger.accept(message("hi", id=f"m{number % 100}"), Trust.OPERATOR))
            for number in range(2_000)
        ]
    entries = [entry for task in tasks if (entry := task.result()) is not None]

    assert len(entries) == len({entry.id for entry in entries}) == 100


@covers("idem.ttl")
async def test_a_key_is_kept_for_a_day_and_not_longer(disk: Disk) -> None:
    async with disk.open() as ledger:
        ledger.settle(await accepted(ledger), "answered")
        disk.clock.advance(24 * 3600 - 1)
        assert await ledger.accept(message("hi"), Trust.OPERATOR) is None
    async with disk.open() as ledger:
        assert await ledger.accept(message("hi"), Trust.OPERATOR) is None
        disk.clock.advance(1)

        assert await ledger.accept(message("hi"), Trust.OPERATOR) is not None


async def test_a_key_is_free_after_its_day_however_many_older_rows_there_are(disk: Disk) -> None:
    async with disk.open() as ledger:
        for number in range(100):
            ledger.settle(await accepted(ledger, message("hi", id=f"old{number}")), "answered")
    async with disk.open() as ledger:
        disk.clock.advance(24 * 3600)

        assert await ledger.accept(message("hi", id="old99"), Trust.OPERATOR) is not None


async def test_old_rows_go_with_their_replies_and_unfinished_ones_stay(disk: Disk) -> None:
    async with disk.open() as ledger:
        for number in range(30):
            entry = await accepted(ledger, message("hi", id=f"old{number}"))
            await ledger.outgoing(entry, ["answer"], settles="answered")
            if number:
                ledger.settle(entry, "answered")
        disk.clock.advance(25 * 3600)
        for number in range(3):
            await accepted(ledger, message("hi", id=f"new{number}"))

    assert [id for (id,) in disk.rows("SELECT message_id FROM inbox ORDER BY id")] == ["old0", "new0", "new1", "new2"]
    assert disk.rows("SELECT count(*) FROM outbox") == [(1,)]


@covers("idem.forget-on-failed-start")
async def test_a_message_that_cannot_be_written_is_welcome_again(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 3, ledger: key and row are one insert; if it fails neither exists, and the retry runs."""
    async with Database.open(disk.path) as database:
        ledger = Ledger(database, disk.clock)

        async def full(fn: Callable[[Connection], object], *, durable: bool = False) -> object:
            raise NeedsOperator("the disk is full", advice="free some space")

        with monkeypatch.context() as broken:
            broken.setattr(database, "run", full)
            with pytest.raises(NeedsOperator):
                await ledger.accept(message("hi"), Trust.OPERATOR)

        assert await ledger.accept(message("hi"), Trust.OPERATOR) is not None


async def test_what_is_promised_to_survive_a_power_cut_is_synced(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 3, ledger: the accepted message, a reply before it is sent, the mark of a first tool with an effect."""
    synced: list[bool] = []
    async with Database.open(disk.path) as database:
        ledger, run = Ledger(database, disk.clock), database.run

        async def watched(fn: Callable[[Connection], object], *, durable: bool = False) -> object:
            synced.append(durable)
            return await run(fn, durable=durable)

        monkeypatch.setattr(database, "run", watched)
        entry = await accepted(ledger)
        await ledger.effect(entry, "shell")
        _, second = await ledger.outgoing(entry, ["one", "two"], settles="answered")
        await ledger.sending(second)

    assert synced == [True, True, True, True]


async def test_a_start_finds_a_message_as_it_came(disk: Disk) -> None:
    """Every field but the bytes, which are never stored."""
    picture = Media("image", "image/png", b"\x89PNG\xff", "a.png")
    file = Attachment("file", "ref-1", "text/plain", 7, "a.txt")
    whole = replace(message("a lone half \ud800, a bell \a, an ü"), origin=LocalOrigin(Path("/x"), attended=False))
    whole = replace(whole, thread="9", attachments=(file,), media=(picture,), kind="file", private=False, album="al")
    async with disk.open() as ledger:
        entry = await accepted(ledger, whole)
    async with disk.open() as ledger:
        (found,) = await ledger.unfinished()

    assert found.message == replace(whole, media=())
    assert (found.entry, found.trust, found.media, found.accepted_at) == (entry, Trust.OPERATOR, True, START)
    assert (found.begun, found.effect, found.stopped, found.replies) == (0, None, False, ())


async def test_a_start_finds_how_far_a_turn_had_come(disk: Disk) -> None:
    async with disk.open() as ledger:
        entry = await accepted(ledger)
        ledger.begin(entry)
        await ledger.effect(entry, "shell")
        await ledger.effect(entry, "write_file")
        ledger.stop(entry)
        ledger.draft(entry, "77")
    async with disk.open() as ledger:
        (found,) = await ledger.unfinished()

    assert (found.begun, found.effect, found.stopped, found.draft) == (1, "shell", True, "77")


async def test_a_start_finds_each_part_of_a_reply_as_it_stood(disk: Disk) -> None:
    async with disk.open() as ledger:
        entry = await accepted(ledger)
        one, two, three = await ledger.outgoing(
            entry, ["a", "b", "c"], settles="answered", model="fake/m", answer="abc"
        )
        ledger.sent(one, "p1")
        await ledger.sending(replace(two, marked=True))
    async with disk.open() as ledger:
        (found,) = await ledger.unfinished()

    assert (found.answer, found.model) == ("abc", "fake/m")
    assert found.replies == (
        Outgoing(one.id, one.key, "a", "fake/m", "answered", "sent"),
        Outgoing(two.id, two.key, "b", "fake/m", "answered", "in_flight", marked=True),
        Outgoing(three.id, three.key, "c", "fake/m", "answered", "unsent"),
    )
    assert len({one.key, two.key, three.key}) == 3


async def test_settled_messages_are_not_found(disk: Disk) -> None:
    async with disk.open() as ledger:
        for outcome in ("handled", "stopped", "failed", "refused", "excused"):
            ledger.settle(await accepted(ledger, message("hi", id=outcome)), outcome)
        last = await accepted(ledger, message("hi", id="last"))
    async with disk.open() as ledger:
        assert [found.entry for found in await ledger.unfinished()] == [last]


async def test_an_album_becomes_one_row(disk: Disk) -> None:
    async with disk.open() as ledger:
        first, second = [await accepted(ledger, message("", id=id)) for id in ("m1", "m2")]
        merged = message("two pictures", id="m1")
        ledger.merge(first, merged, [second], trust=Trust.GUEST)
    async with disk.open() as ledger:
        (found,) = await ledger.unfinished()

    assert (found.entry, found.message, found.trust) == (first, merged, Trust.GUEST)


@pytest.mark.parametrize(
    "damage",
    [
        "message_json = '{}'",
        "message_json = 'no JSON'",
        f"message_json = '{'[' * 100_000}'",  # deeper than anything that reads it goes
        "accepted_at = 'yesterday'",
        "accepted_at = '2026-11-30T10:00:00'",  # without a zone its age cannot be told
        "answer = x'ff'",
    ],
    ids=lambda damage: damage[:30],
)
async def test_a_row_that_cannot_be_read_is_given_up_and_keeps_no_other_from_its_turn(
    disk: Disk, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    async with disk.open() as ledger:
        await accepted(ledger)
        second = await accepted(ledger, message("hi", id="m2"))
    with closing(sqlite3.connect(disk.path)) as connection, connection:
        connection.execute(f"UPDATE inbox SET {damage} WHERE message_id = 'm1'")
    async with disk.open() as ledger:
        assert [found.entry for found in await ledger.unfinished()] == [second]

    assert "given up" in caplog.text
    assert disk.rows("SELECT outcome FROM inbox ORDER BY id") == [("failed",), (None,)]


async def test_writes_that_nobody_waits_for_are_on_disk_in_their_order(disk: Disk) -> None:
    async with disk.open() as ledger:
        entry = await accepted(ledger)
        for outcome in ("failed", "handled", "stopped"):
            ledger.settle(entry, outcome)
    assert disk.rows("SELECT outcome FROM inbox") == [("stopped",)]


async def test_the_cache_in_front_forgets_what_the_table_forgets(disk: Disk) -> None:
    async with disk.open() as ledger:
        for number in range(100):
            await accepted(ledger, message("hi", id=f"m{number}"))
            disk.clock.advance(3600)

        assert len(ledger._seen._seen) == 24
