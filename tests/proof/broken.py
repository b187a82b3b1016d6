"""The same gateway with one thing broken, each with the promise that the machine must then see broken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

import pytest

from fermix.agent import approvals
from fermix.agent.approvals import Approvals, Pending
from fermix.clock import Clock
from fermix.gateway import authorize, command, gateway, intake, ledger
from fermix.gateway.answer import Answer
from fermix.gateway.authorize import Access, Authorization, Authorizer, Denial
from fermix.gateway.channel import Channel
from fermix.gateway.command import Command
from fermix.gateway.delivery import Delivered, Delivery
from fermix.gateway.gateway import Gateway
from fermix.gateway.ledger import Ledger, Outgoing, Unfinished
from fermix.gateway.queue import Lane, Lanes, Slot
from fermix.gateway.recovery import plan
from fermix.gateway.settings import ChannelSpec, UserSettings
from fermix.message import ConversationKey, Message, Text
from fermix.trust import Trust
from tests.proof.machine import Theme
from tests.proof.model import Promise

Patch = pytest.MonkeyPatch
Breaking = Callable[[Patch], None]
BROKEN: dict[str, tuple[Breaking, Promise, Theme]] = {}


def breaks(promise: Promise, theme: Theme) -> Callable[[Breaking], Breaking]:
    """Note what must be seen broken, and what must be done to it that this is seen soon."""

    def note(breaking: Breaking) -> Breaking:
        BROKEN[breaking.__name__.strip("_")] = (breaking, promise, theme)
        return breaking

    return note


# Who may write.


@breaks(Promise.STRANGERS, "speech")
def _let_a_wildcard_mean_everybody(patch: Patch) -> None:
    judge = authorize._judge

    def generous(access: Access, message: Message) -> Authorization | Denial:
        listed = access.listed | ({message.sender.id or ""} if "*" in access.listed else set())
        return judge(replace(access, listed=listed), message)

    patch.setattr(authorize, "_judge", generous)
    patch.setattr(ChannelSpec, "_ids", lambda self, *stated: frozenset(text for text in stated if text))


@breaks(Promise.STRANGERS, "speech")
def _answer_a_stranger(patch: Patch) -> None:
    ingest = Gateway.ingest

    async def polite(self: Gateway, message: Message, channel: Channel) -> None:
        if isinstance(self._rooms.authorizer.resolve(message), Denial):
            await channel.send(message, Text("I do not know you."), "key")
        await ingest(self, message, channel)

    patch.setattr(Gateway, "ingest", polite)


@breaks(Promise.STRANGERS, "speech")
def _take_what_is_no_request(patch: Patch) -> None:
    patch.setattr(gateway, "NO_REQUEST", frozenset())


@breaks(Promise.RIGHTS, "speech")
def _trust_the_only_one_on_the_list(patch: Patch) -> None:
    def fallback(self: UserSettings) -> str | None:
        return self.owner_user_id or (self.listed[0] if len(self.listed) == 1 else None)

    patch.setattr(UserSettings, "explicit_owner", property(fallback))


@breaks(Promise.RIGHTS, "approvals")
def _trust_what_comes_back_after_a_yes(patch: Patch) -> None:
    resolve = Authorizer.resolve

    def trusting(self: Authorizer, message: Message) -> Authorization | Denial:
        verdict = resolve(self, message)
        return Authorization(Trust.OPERATOR, commands=True) if message.id.startswith("resumed-") else verdict

    patch.setattr(Authorizer, "resolve", trusting)


@breaks(Promise.RIGHTS, "restarts")
def _remember_an_earlier_right(patch: Patch) -> None:
    def as_it_was(found: Unfinished, authorizer: Authorizer) -> Authorization:
        return Authorization(found.trust, commands=True)

    patch.setattr(gateway, "sender_now", as_it_was)


@breaks(Promise.RIGHTS, "commands")
def _let_anybody_clear(patch: Patch) -> None:
    allows = Command.allows
    patch.setattr(Command, "allows", lambda self, sender: self.name == "new" or allows(self, sender))


@breaks(Promise.RIGHTS, "approvals")
def _take_a_program_for_a_person(patch: Patch) -> None:
    patch.setattr(command, "is_attended", lambda message: True)
    patch.setattr(intake, "is_attended", lambda message: True)


# What is taken, and in what order it is done.


@breaks(Promise.FRESH, "restarts")
def _forget_at_a_restart_what_was_taken(patch: Patch) -> None:
    patch.setattr(ledger, "_PURGE_KEY", ledger._PURGE_KEY.replace("accepted_at <= ?", "? IS NOT NULL"))


@breaks(Promise.FRESH, "speech")
def _let_racing_copies_win_together(patch: Patch) -> None:
    patch.setattr(ledger, "_ACCEPT", ledger._ACCEPT.replace("DO NOTHING", "DO UPDATE SET media = media"))


@breaks(Promise.FRESH, "commands")
def _run_a_command_again_after_a_restart(patch: Patch) -> None:
    patch.setattr(gateway, "plan", lambda found, *, command, now: plan(found, command=False, now=now))


@breaks(Promise.KEPT, "restarts")
def _acknowledge_before_the_write(patch: Patch) -> None:
    async def hasty(self: Gateway, message: Message, channel: Channel) -> None:
        verdict = self._rooms.authorizer.resolve(message)
        if isinstance(verdict, Authorization) and gateway._problem_of(message, channel) is None:
            received: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            received.set_result(None)
            if message.kind not in gateway.NO_REQUEST:
                self._start(message, partial(self._intake, message, verdict, channel, received))

    patch.setattr(Gateway, "ingest", hasty)


@breaks(Promise.ALONE, "speech")
def _run_all_of_a_conversation_at_once(patch: Patch) -> None:
    reserve = Lanes.reserve

    def beside(self: Lanes, key: ConversationKey, message_id: str) -> Slot:
        return reserve(self, key._replace(thread=message_id), message_id)

    patch.setattr(Lanes, "reserve", beside)


@breaks(Promise.ORDER, "speech")
def _begin_with_the_last(patch: Patch) -> None:
    reserve = Lanes.reserve

    def in_front(self: Lanes, key: ConversationKey, message_id: str) -> Slot:
        slot = reserve(self, key, message_id)
        slots = self._lanes[key].slots
        slots.remove(slot)
        slots.insert(1, slot)
        return slot

    patch.setattr(Lanes, "reserve", in_front)


@breaks(Promise.ORDER, "restarts")
def _begin_with_the_newest_after_a_restart(patch: Patch) -> None:
    unfinished = Ledger.unfinished

    async def newest_first(self: Ledger) -> tuple[Unfinished, ...]:
        return (await unfinished(self))[::-1]

    patch.setattr(Ledger, "unfinished", newest_first)


# What becomes of a message.


@breaks(Promise.OUTCOME, "restarts")
def _settle_before_sending(patch: Patch) -> None:
    run = Answer.run

    async def early(self: Answer) -> None:
        self._services.ledger.settle(self._entry, "answered")
        await run(self)

    patch.setattr(Answer, "run", early)


@breaks(Promise.OUTCOME, "restarts")
def _forget_what_waits_at_a_restart(patch: Patch) -> None:
    async def none(self: Ledger) -> tuple[Unfinished, ...]:
        return ()

    patch.setattr(Ledger, "unfinished", none)


@breaks(Promise.EFFECT, "restarts")
def _leave_effects_unmarked(patch: Patch) -> None:
    async def unmarked(self: Ledger, entry: object, name: str) -> None:
        return None

    patch.setattr(Ledger, "effect", unmarked)


@breaks(Promise.EFFECT, "restarts")
def _run_again_after_an_effect(patch: Patch) -> None:
    patch.setattr(gateway, "plan", lambda found, **facts: plan(replace(found, effect=None), **facts))


@breaks(Promise.SAID_ONCE, "restarts")
def _send_again_what_may_have_landed(patch: Patch) -> None:
    note = Delivery._note

    def careless(self: Delivery, sending, error) -> None:
        note(self, sending, error)
        sending.fate = "unsent"

    patch.setattr(Delivery, "_note", careless)


@breaks(Promise.SAID_ONCE, "restarts")
def _send_again_after_a_restart_what_may_have_landed(patch: Patch) -> None:
    resume = Delivery.resume

    async def careless(self: Delivery, parts: Sequence[Outgoing]) -> Delivered:
        return await resume(self, [replace(part, state="unsent") for part in parts if part.state != "sent"])

    patch.setattr(Delivery, "resume", careless)


# What a stop does.


@breaks(Promise.STOPPED, "stops")
def _let_a_delivery_go_on(patch: Patch) -> None:
    patch.setattr(Delivery, "stop", lambda self: None)


@breaks(Promise.STOPPED, "stops")
def _stop_only_what_runs(patch: Patch) -> None:
    stop_slot = Lane._stop_slot
    patch.setattr(Lane, "_stop_slot", lambda self, slot: stop_slot(self, slot) if slot is self.running else "")


@breaks(Promise.ONLY_A_STOP, "stops")
def _stop_everything_for_anybody(patch: Patch) -> None:
    patch.setattr(Lanes, "stop", lambda self, key, *, before=None: self.stop_all(before=before))


@breaks(Promise.ONLY_A_STOP, "restarts")
def _stop_at_a_shutdown(patch: Patch) -> None:
    patch.setattr(Lane, "leave", lambda self: self.stop(before=None))


# What a yes does.


@breaks(Promise.BURNT, "approvals")
def _take_before_looking(patch: Patch) -> None:
    take = Approvals.take

    def hasty(self: Approvals, code: str, answer: Message, *, local: bool) -> Pending | str:
        taken = take(self, code, answer, local=local)
        if taken == "elsewhere" and (found := self._find(code.strip())) is not None:
            del self._pending[found.prompt.id]
        return taken

    patch.setattr(Approvals, "take", hasty)


@breaks(Promise.ASKED_ONCE, "approvals")
def _leave_what_was_answered(patch: Patch) -> None:
    take = Approvals.take

    def lax(self: Approvals, code: str, answer: Message, *, local: bool) -> Pending | str:
        taken = take(self, code, answer, local=local)
        if isinstance(taken, Pending):
            self._pending[taken.prompt.id] = taken
        return taken

    patch.setattr(Approvals, "take", lax)


@breaks(Promise.ASKED_HERE, "approvals")
def _take_an_answer_from_anywhere(patch: Patch) -> None:
    patch.setattr(approvals, "_may_answer", lambda pending, code, answer, *, local: True)


@breaks(Promise.IN_TIME, "approvals")
def _wait_for_ever(patch: Patch) -> None:
    patch.setattr(approvals, "LIFETIME_S", 1e6)


@breaks(Promise.IN_TIME, "approvals")
def _keep_questions_over_a_restart(patch: Patch) -> None:
    made = Approvals.__init__
    kept: WeakKeyDictionary[Clock, dict[str, Pending]] = WeakKeyDictionary()

    def keeping(self: Approvals, clock: Clock) -> None:
        made(self, clock)
        self._pending = kept.setdefault(clock, {})

    patch.setattr(Approvals, "__init__", keeping)


# What lives.


@breaks(Promise.ALIVE, "restarts")
def _let_a_full_disk_end_the_gateway(patch: Patch) -> None:
    intake = Gateway._intake

    async def fragile(self: Gateway, message: Message, verdict: Authorization, channel: Channel,
                      received: asyncio.Future[None]) -> None:  # fmt: skip
        await intake(self, message, verdict, channel, received)
        if received.exception() is not None:
            raise RuntimeError("nobody expected this")

    patch.setattr(Gateway, "_intake", fragile)
    patch.setattr(gateway, "_alone", lambda intake: intake())
