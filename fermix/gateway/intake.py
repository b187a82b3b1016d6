"""What each step does with an accepted message until it has its turn. The gateway calls them in their order.

Every step belongs to one message that is written down and has its place in the lane. What must stay true: a message
leaves here with its place filled or given back, and with a last word unless it got a turn.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from fermix.agent.approvals import Approvals, Origin, Seam
from fermix.agent.budget import Budget
from fermix.agent.sandbox import Policy
from fermix.agent.turn import Turn, WayBack
from fermix.clock import Clock
from fermix.events import Events, MessageSettled
from fermix.gateway.albums import Album, Albums, Held
from fermix.gateway.answer import UNWRITTEN, Agent, Answer, TurnServices
from fermix.gateway.authorize import Authorization, Authorizer
from fermix.gateway.channel import Channel
from fermix.gateway.command import Command, CommandContext, Conversations, is_attended, why_refused
from fermix.gateway.ledger import Entry, Ledger, Outcome
from fermix.gateway.media import MediaFailed, MediaStep
from fermix.gateway.queue import Lanes, Slot
from fermix.gateway.replies import Replier
from fermix.message import Message
from fermix.trust import Trust

log = logging.getLogger(__name__)

UNSEEN = "A picture could not be fetched; the log has the reason."  # for who watches; the sender is told nothing

Ingest = Callable[[Message, Channel], Awaitable[None]]
"""The way in of a new message."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """What the gateway works with, wired by the composition root."""

    agent: Agent
    authorizer: Authorizer
    ledger: Ledger
    conversations: Conversations
    policy: Policy
    approvals: Approvals
    commands: Sequence[Command]
    events: Events
    clock: Clock
    media: MediaStep
    budget: Budget


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that is written down as it came, with its place in the lane and the way back."""

    message: Message
    channel: Channel
    sender: Authorization
    entry: Entry
    slot: Slot
    replier: Replier
    album: Album | None = None
    """The album that this is the first part of, while the others may still come."""


class IntakeSteps:
    """One per gateway. `ingest` takes a request that comes in again after a yes."""

    def __init__(self, rooms: Rooms, turns: TurnServices, albums: Albums, lanes: Lanes, ingest: Ingest) -> None:
        self._rooms = rooms
        self._turns = turns
        self._albums = albums
        self._lanes = lanes
        self._ingest = ingest

    async def whole(self, accepted: Accepted) -> Accepted:
        """Wait for the rest of an album. A stop or a shutdown ends the wait and the whole intake with it."""
        album = accepted.album
        if album is None:
            return accepted
        first = self.answer(accepted, accepted.message)
        with accepted.slot.waiting(Held(self._albums, album, first.drop)):
            whole = await self._albums.whole(album)
        return replace(accepted, message=whole.message, sender=whole.sender, album=None)

    async def with_media(self, accepted: Accepted) -> Message | None:
        """Return what the agent is to read; None when it failed, or a stop or a shutdown came first."""
        message, slot = accepted.message, accepted.slot
        if not message.attachments:
            return message
        unready = self.answer(accepted, message)
        if slot.stopped:
            slot.put(unready)
            return None
        try:
            ready = await self._fetched(accepted, unready)
        except MediaFailed as error:
            if not slot.decided.is_set():
                await self._end_without_media(accepted, error)
            return None
        return None if slot.decided.is_set() else ready

    async def _fetched(self, accepted: Accepted, unready: Answer) -> Message:
        message = accepted.message
        async with accepted.slot.preparing(unready):
            ready = await self._rooms.media.prepare(message, accepted.channel)
            if ready.text != message.text:  # what was said outlives us like what was typed
                rest = tuple(one for one in message.attachments if one.kind != "audio")
                await self._rooms.ledger.heard(accepted.entry, replace(message, text=ready.text, attachments=rest))
        return ready

    async def _end_without_media(self, accepted: Accepted, error: MediaFailed) -> None:
        log.error("message %d gets no turn: %s", accepted.entry.id, error)
        if error.user_text is None:
            self._settle(accepted, "failed", UNSEEN)
        else:
            await self.end(accepted, error.user_text, "failed")

    async def end(self, accepted: Accepted, sentence: str, outcome: Outcome) -> None:
        """Answer with a sentence of our own and no turn."""
        await accepted.replier.tell(sentence, outcome)
        self._settle(accepted, outcome, "" if outcome == "handled" else sentence)

    async def command(self, accepted: Accepted, message: Message, command: Command, rest: str) -> None:
        """Run a command, or say why not; either way that is the last word on the message."""
        sender, replier, rooms = accepted.sender, accepted.replier, self._rooms
        if (refusal := why_refused(command, sender, message)) is not None:
            await replier.tell(refusal)
        elif command.run is None:
            await replier.tell(command.missing)
        else:
            await command.run(
                CommandContext(
                    message, sender, rest, replier, accepted.slot, self._lanes,
                    rooms.conversations, rooms.policy, rooms.approvals, rooms.commands, rooms.budget,
                    rooms.agent.compact,
                )
            )  # fmt: skip
        self._settle(accepted, "handled")

    def enqueue(self, accepted: Accepted, message: Message) -> bool:
        """Fill the place with a turn; False, and nothing done, when too much waits there already."""
        media_bytes = sum(len(one.data) for one in message.media)
        text_bytes = len(message.text.encode(errors="replace"))
        return accepted.slot.fill(self.answer(accepted, message), text_bytes, media_bytes)

    def answer(self, accepted: Accepted, message: Message) -> Answer:
        """Make the work of the lane."""
        return Answer(self._turns, self.turn(accepted, message), accepted.entry, accepted.replier)

    def turn(self, accepted: Accepted, message: Message) -> Turn:
        """Make a turn with the rights of the message's sender, and none beyond them."""
        trust = accepted.sender.trust
        turn = Turn(uuid.uuid4().hex, message, trust, is_attended(message), ledger_id=accepted.entry.id)
        return replace(turn, seam=self._seam(accepted), way_back=_way_back(accepted.channel))

    def _seam(self, accepted: Accepted) -> Seam | None:
        """How an operator can be asked in this turn. On a chat channel the request then comes in again by itself, as
        if it were sent now: it is authorized anew.
        """
        message, channel = accepted.message, accepted.channel
        if accepted.sender.trust is not Trust.OPERATOR or not is_attended(message):
            return None
        origin = Origin.of(message)
        if message.origin is not None:
            return Seam(origin, shared=False, after_yes="Now send your request again.")

        async def resume() -> None:
            await self._ingest(replace(message, id=f"resumed-{uuid.uuid4().hex}"), channel)

        return Seam(origin, not message.private, resume, "Your request runs again now.")

    def _settle(self, accepted: Accepted, outcome: Outcome, error: str = "") -> None:
        accepted.slot.release()
        if accepted.replier.owes:  # it stays unfinished in the ledger; those behind it in the lane go on
            error = UNWRITTEN
        else:
            self._rooms.ledger.settle(accepted.entry, outcome)
        self._tell_settled(accepted, error)

    def _tell_settled(self, accepted: Accepted, error: str) -> None:
        shown = "failed" if error else "handled"
        self._rooms.events.emit(MessageSettled(accepted.message.key, accepted.message.id, shown, 0.0, error))


def _way_back(channel: Channel) -> WayBack:
    abilities = channel.abilities
    return WayBack(abilities.files, () if abilities.reactions is None else abilities.reactions.emoji)
