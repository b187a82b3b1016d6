"""The same daemon with one thing broken, each for a promise that the trials hold: they must catch every one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fermix.agent.memory import conversations
from fermix.gateway import ledger
from fermix.gateway.authorize import Authorization
from fermix.gateway.channel import Channel
from fermix.gateway.delivery import Delivered, Delivery
from fermix.gateway.gateway import Gateway
from fermix.gateway.ledger import Entry, Ledger, Outgoing, Unfinished
from fermix.message import Message


def _acknowledge_before_the_write() -> None:
    async def hasty(self: Gateway, message: Message, channel: Channel) -> None:
        verdict = self._rooms.authorizer.resolve(message)
        assert isinstance(verdict, Authorization)
        received: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start(message, partial(self._intake, message, verdict, channel, received))

    Gateway.ingest = hasty


def _forget_what_was_accepted() -> None:
    ledger._ACCEPT = ledger._ACCEPT.replace("DO NOTHING", "DO UPDATE SET outcome = NULL")


def _leave_effects_unmarked() -> None:
    async def unmarked(self: Ledger, entry: object, name: str) -> None:
        return None

    Ledger.effect = unmarked


def _send_again_what_may_have_landed() -> None:
    resume = Delivery.resume

    async def careless(self: Delivery, parts: Sequence[Outgoing]) -> Delivered:
        again = [replace(part, state="unsent") if part.state == "in_flight" else part for part in parts]
        return await resume(self, again)

    Delivery.resume = careless


def _never_send_again() -> None:
    async def silent(self: Delivery, parts: Sequence[Outgoing]) -> Delivered:
        return "sent"

    Delivery.resume = silent


def _store_again() -> None:
    conversations._stored_kinds = lambda rows, ledger_id: frozenset()


def _begin_with_the_newest() -> None:
    unfinished = Ledger.unfinished

    async def newest_first(self: Ledger) -> tuple[Unfinished, ...]:
        return (await unfinished(self))[::-1]

    Ledger.unfinished = newest_first


def _run_everything_again() -> None:
    from fermix.gateway import gateway

    gateway.plan = lambda found, **_: "run"


def _leave_the_parts_of_an_album_unfinished() -> None:
    merge = Ledger.merge

    def forgetful(self: Ledger, entry: Entry, message: Message, _: object, **rights: Any) -> None:
        merge(self, entry, message, (), **rights)

    Ledger.merge = forgetful


def _gather_no_album_that_was_found() -> None:
    Unfinished.untouched = property(lambda _: False)


TWINS: Mapping[str, Callable[[], None]] = {
    breaking.__name__.strip("_"): breaking
    for breaking in (
        _acknowledge_before_the_write,
        _forget_what_was_accepted,
        _leave_effects_unmarked,
        _send_again_what_may_have_landed,
        _never_send_again,
        _store_again,
        _begin_with_the_newest,
        _run_everything_again,
    )
}
ALBUM_TWINS: Mapping[str, Callable[[], None]] = {
    breaking.__name__.strip("_"): breaking
    for breaking in (_leave_the_parts_of_an_album_unfinished, _gather_no_album_that_was_found)
}
