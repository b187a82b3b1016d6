"""What a start does with each message that an earlier process accepted and did not finish.

Sender and stops are judged first, by the rules of now. `plan` decides by the row alone: a reply that was written down
is delivered to its end, a turn that changed nothing runs again, all others are excused with one honest sentence and
never run later. `Recovered` does what needs no turn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal, assert_never

from fermix.agent.turn import Cancelled, Failed, Turn
from fermix.errors import ChannelUnavailable
from fermix.events import MessageSettled
from fermix.gateway.answer import BROKEN, UNDELIVERED, TurnServices
from fermix.gateway.authorize import Authorization, Authorizer, Denial, lesser
from fermix.gateway.channel import Channel
from fermix.gateway.command import Command, parse, stop_reach, why_refused
from fermix.gateway.drafts import find_draft
from fermix.gateway.ledger import UNKNOWN_DRAFT, Outcome, Outgoing, Unfinished
from fermix.gateway.replies import Replier, past_failing
from fermix.message import ConversationKey, Media, Message

log = logging.getLogger(__name__)

MOST_BEGUN = 2  # a turn that ended two processes is not given a third
MOST_AGE = timedelta(hours=6)  # past that an answer comes out of the blue; a night is excused, a restart is not
QUOTED_CHARS = 60
TIDYING_S = 60.0
PLACEHOLDER = "…"  # of a draft that is opened only to learn its id, and removed at once

Step = Literal["run", "deliver", "stop", "excuse"]


def plan(found: Unfinished, *, command: bool, now: datetime) -> Step:
    """Decide what becomes of a message. `command` says that it is one of ours: those never run a second time."""
    if found.answer is not None or any(reply.settles for reply in found.replies):
        cut = found.stopped and any(reply.state != "sent" for reply in found.replies)
        return "stop" if cut else "deliver"
    if found.stopped:
        return "stop"
    spent = found.effect is not None or found.begun >= MOST_BEGUN or found.media or bool(found.replies)
    return "excuse" if command or spent or now - found.accepted_at > MOST_AGE else "run"


def sender_now(found: Unfinished, authorizer: Authorizer) -> Authorization | None:
    """Judge the sender again: what counts is the lesser of then and now, None when he may no longer write."""
    verdict = authorizer.resolve(found.message)
    if isinstance(verdict, Denial):
        return None
    return lesser(verdict, Authorization(found.trust, found.commands))


def with_stops_obeyed(
    found: Sequence[Unfinished], authorizer: Authorizer, commands: Sequence[Command]
) -> list[Unfinished]:
    """Mark the messages that stand before a `/stop` which was accepted and not run: it holds, also after a crash."""
    stops = _accepted_stops(found, authorizer, commands)

    def is_before_one(one: Unfinished) -> bool:
        return one.entry.id < max(stops.get(None, 0), stops.get(one.message.key, 0))

    return [replace(one, stopped=one.stopped or is_before_one(one)) for one in found]


def _accepted_stops(
    found: Sequence[Unfinished], authorizer: Authorizer, commands: Sequence[Command]
) -> Mapping[ConversationKey | None, int]:
    """Say up to which message each conversation was stopped, None for every one."""
    stops: dict[ConversationKey | None, int] = {}
    for one in found:
        parsed, sender = parse(one.message.text, commands), sender_now(one, authorizer)
        if parsed is None or parsed[0].name != "stop" or sender is None:
            continue
        reach = stop_reach(parsed[1], sender, one.message)
        if reach is not None and why_refused(parsed[0], sender, one.message) is None:
            stops[None if reach == "everything" else one.message.key] = one.entry.id
    return stops


def excuse(found: Unfinished) -> str:
    """Say to the sender what happened to this message; it is the last word on it."""
    line = " ".join(found.message.text.split())
    short = line if len(line) <= QUOTED_CHARS else f"{line[:QUOTED_CHARS]}…"
    quote = f" “{short}”" if short else ""
    if found.effect is not None:
        return (
            f"I was restarted while I worked on your message{quote}. Something may already have been done, so I have"
            " not tried again. Please look, and send it again if it is still needed."
        )
    return f"I was restarted before I could answer your message{quote}. Please send it again if it still matters."


def remembered(found: Unfinished) -> Message:
    """Return the message as the history is to keep it: its pictures are not here, but that there were some is told."""
    count = sum(one.kind == "image" for one in found.message.attachments) or int(found.media)
    return replace(found.message, media=(Media("image", "", b""),) * count, attachments=())


async def tidied(found: Unfinished, channel: Channel) -> Unfinished:
    """Remove the draft that was left in the chat. Bubbles that it left behind it go too, unless there is an answer:
    then they are its beginning. A draft that stays may show the answer, so that what is sent beside it says so.
    """
    if found.draft is None or channel.abilities.drafts is None:
        return found
    live, *others = found.draft.split("\n")
    try:
        async with asyncio.timeout(TIDYING_S):
            await _remove(found, live, others, channel)
    except (ChannelUnavailable, TimeoutError) as error:
        log.warning("a draft is left in a chat of %s: %s", channel.name, error)
        return _beside_a_draft(found, channel)
    return replace(found, draft=None)


def _beside_a_draft(found: Unfinished, channel: Channel) -> Unfinished:
    """Mark an answer as one that may stand in the chat already; delivery does it alone where its send is in doubt and
    the platform cannot tell.
    """
    abilities = channel.abilities
    can_tell = abilities.lookup is not None or abilities.idempotent

    def marked(reply: Outgoing) -> Outgoing:
        waits = reply.state == "unsent" or (reply.state == "in_flight" and can_tell)
        return replace(reply, marked=True) if waits else reply

    first = next((reply for reply in found.replies if reply.settles), None)
    return replace(found, replies=tuple(marked(reply) if reply is first else reply for reply in found.replies))


async def _remove(found: Unfinished, live: str, others: Sequence[str], channel: Channel) -> None:
    """Take bubbles out of the chat; of the live one perhaps only the key is known. Raises: ChannelUnavailable."""
    drafts, message = channel.abilities.drafts, found.message
    assert drafts is not None  # asked before
    for bubble in others if found.answer is None else ():
        await drafts.discard(message, bubble)
    if found.doubtful:
        key = live.removeprefix(UNKNOWN_DRAFT)
        live = await find_draft(channel.abilities, message, PLACEHOLDER, key) or ""
    if live:
        await drafts.discard(message, live)


class Recovered:
    """A message that gets its last word without a turn. `Work` of a lane."""

    def __init__(self, services: TurnServices, found: Unfinished, step: Step, turn: Turn, replier: Replier) -> None:
        self._services = services
        self._found = found
        self._step: Step = step
        self._turn = turn
        self._replier = replier

    async def run(self) -> None:
        try:
            await self._do()
        except Exception:
            log.exception("a message of an earlier start broke")
            if await self._replier.tell(BROKEN, "failed") != "left":
                self._settle("failed", BROKEN)

    async def _do(self) -> None:
        match self._step:
            case "deliver":
                await self._deliver()
            case "excuse":
                await self._excuse()
            case "stop":
                self._give_up()
                await self._stop()
            case "run":
                raise AssertionError("a turn that runs again is not recovered here")
            case _:
                assert_never(self._step)

    def stop(self) -> None:
        self._services.ledger.stop(self._found.entry)
        self._replier.stop()

    def leave(self) -> None:
        self._replier.leave()

    def drop(self) -> None:
        self._give_up()
        self._settle("stopped")

    def _give_up(self) -> None:
        """Note that no reply goes out any more; what was on its way may have landed."""
        for reply in self._found.replies:
            if reply.state in ("unsent", "in_flight"):
                self._services.ledger.failed(reply, "stopped")

    async def _deliver(self) -> None:
        found, agent, turn = self._found, self._services.agent, self._turn
        between, final = _parted(found.replies)
        await self._replier.resume(between)
        ended = await self._replier.resume(final)
        if ended == "left":
            return
        if found.answer is None:
            self._settle(final[-1].settles or "handled")
        elif ended == "sent":
            await past_failing(agent.restore(turn, found.answer, found.model or ""), "storing an answer")
            self._settle("answered")
        elif ended == "failed":
            await self._close(Failed(UNDELIVERED, "delivery failed"))
            self._settle("answered", UNDELIVERED)
        else:
            await self._stop()

    async def _excuse(self) -> None:
        sentence = excuse(self._found)
        if await self._replier.resume(self._found.replies) == "left":
            return
        if await self._replier.tell(sentence, "excused") == "left":
            return
        await self._close(Failed(sentence, "restarted"))
        self._settle("excused", sentence)

    async def _stop(self) -> None:
        await self._close(Cancelled())
        self._settle("stopped")

    async def _close(self, outcome: Cancelled | Failed) -> None:
        await past_failing(self._services.agent.abandon(self._turn, outcome), "closing a turn in the history")

    def _settle(self, outcome: Outcome, error: str = "") -> None:
        message = self._found.message
        self._services.ledger.settle(self._found.entry, outcome)
        self._services.events.emit(MessageSettled(message.key, message.id, _shown(outcome, error), 0.0, error))


def _parted(replies: Sequence[Outgoing]) -> tuple[list[Outgoing], list[Outgoing]]:
    between = [reply for reply in replies if reply.settles is None]
    return between, [reply for reply in replies if reply.settles is not None]


def _shown(outcome: Outcome, error: str) -> Literal["completed", "cancelled", "failed", "handled"]:
    if error:
        return "failed"
    match outcome:
        case "answered":
            return "completed"
        case "stopped":
            return "cancelled"
        case "failed" | "refused" | "excused":
            return "failed"
        case "handled":
            return "handled"
