"""The one way in. `ingest` and `_intake` hold the steps in their order; a reviewer reads the trust model here.

recover  take up what an earlier process left                         before anybody is heard
ingest   normalize, authorize, write down, reserve the lane's place   the adapter acknowledges when it returns
intake   reply path, album, media, empty check, commands, enqueue     one task per message, from the write on
Answer   run the turn, deliver, commit, settle                        in the lane, one at a time
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from fermix.agent.approvals import Approvals, Origin, Seam
from fermix.agent.model import valid_text
from fermix.agent.sandbox import Policy
from fermix.agent.turn import Turn
from fermix.clock import Clock
from fermix.events import Events, MessageReceived, MessageSettled, ServiceState, preview
from fermix.gateway.albums import Album, Albums, Held, Part
from fermix.gateway.answer import BROKEN, UNWRITTEN, Agent, Answer, TurnServices
from fermix.gateway.authorize import Authorization, Authorizer, Denial, described, lesser
from fermix.gateway.channel import Channel, StreamTier
from fermix.gateway.command import Command, CommandContext, Conversations, is_attended, parse, stop_reach, why_refused
from fermix.gateway.ledger import Entry, Ledger, Outcome, Unfinished
from fermix.gateway.media import MediaFailed, MediaStep
from fermix.gateway.queue import Lanes, Slot
from fermix.gateway.recovery import Recovered, Step, plan, remembered, tidied
from fermix.gateway.replies import Replier, ReplyServices
from fermix.message import ConversationKey, Message
from fermix.trust import Trust

log = logging.getLogger(__name__)

EMPTY = "Your message looks empty — send some text or media I can read."
RESTARTING = "I'm restarting — please send your message again in a moment."
FULL = "Too many messages wait for me here. Please send this one again when I have answered some of them."
UNSEEN = "A picture could not be fetched; the log has the reason."  # for who watches; the sender is told nothing
NO_REQUEST = frozenset({"reaction", "join"})  # authorized like all, but nothing is asked of us
REQUIRED = ("id", "channel", "chat_id", "reply_target", "thread")
DRAIN_S = 6.0  # running turns may end by themselves before a shutdown leaves them; the whole shutdown has 10 s


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


class Gateway:
    """Made by `open`; leaving it drains the lanes."""

    def __init__(self, rooms: Rooms, group: asyncio.TaskGroup) -> None:
        self._rooms = rooms
        self._group = group
        self._intakes: set[asyncio.Task[None]] = set()
        self._telling: set[Replier] = set()  # of messages that are in no lane's work yet, or never will be
        self._closing = False
        self._ledger_problem = ""
        self._turns = TurnServices(rooms.agent, rooms.ledger, rooms.events, rooms.clock)
        self._replies = ReplyServices(rooms.ledger, rooms.events, rooms.clock)
        self._albums = Albums(rooms.ledger, rooms.events, rooms.clock)
        self.lanes = Lanes(group, rooms.events)

    @classmethod
    @asynccontextmanager
    async def open(cls, rooms: Rooms) -> AsyncGenerator[Gateway]:
        async with asyncio.TaskGroup() as group:
            gateway = cls(rooms, group)
            try:
                yield gateway
            finally:
                await gateway.drain()

    async def ingest(self, message: Message, channel: Channel) -> None:
        """Take one message. When this returns the channel may tell its platform that it was received.

        Raises: NeedsOperator or Unavailable when it cannot be written down; then the platform must send it again.
        """
        if (problem := _problem_of(message, channel)) is not None:
            log.error("message dropped: %s (channel %r)", problem, message.channel)
            return
        verdict = self._rooms.authorizer.resolve(message)
        if isinstance(verdict, Denial):
            log.warning("denied (%s): %s", verdict.reason, described(message))
            return
        if message.kind in NO_REQUEST:
            return
        received: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start(self._intake(message, verdict, channel, received), message)
        await received  # not the task: an adapter that is cancelled here does not take an accepted message along

    async def recover(self, channels: Mapping[str, Channel]) -> None:
        """Take up what an earlier process left, each message in its old place. Called before any channel is heard.

        Raises: NeedsOperator or Unavailable when the ledger cannot be read.
        """
        found = await self._rooms.ledger.unfinished()
        self._rooms.conversations.expect(one.entry.id for one in found)
        stops = self._accepted_stops(found)
        for one in found:
            channel = channels.get(one.message.channel)
            if channel is None:
                log.warning("a message of an earlier start waits for channel %r", one.message.channel)
                continue
            obeyed = one.entry.id < max(stops.get(None, 0), stops.get(one.message.key, 0))
            self._take_up(replace(one, stopped=one.stopped or obeyed), channel)

    def _accepted_stops(self, found: Sequence[Unfinished]) -> Mapping[ConversationKey | None, int]:
        """Say up to which message each conversation was stopped, None for every one: an accepted stop holds."""
        stops: dict[ConversationKey | None, int] = {}
        for one in found:
            parsed, sender = parse(one.message.text, self._rooms.commands), self._sender_now(one)
            if parsed is None or parsed[0].name != "stop" or sender is None:
                continue
            reach = stop_reach(parsed[1], sender, one.message)
            if reach is not None and why_refused(parsed[0], sender, one.message) is None:
                stops[None if reach == "everything" else one.message.key] = one.entry.id
        return stops

    def _sender_now(self, found: Unfinished) -> Authorization | None:
        """Judge the sender again: what counts is the lesser of then and now, None when he may no longer write."""
        verdict = self._rooms.authorizer.resolve(found.message)
        if isinstance(verdict, Denial):
            return None
        return lesser(verdict, Authorization(found.trust, found.commands))

    def _take_up(self, found: Unfinished, channel: Channel) -> None:
        message = found.message if found.untouched else replace(found.message, album=None)
        sender = self._sender_now(found)
        if sender is None:
            log.warning("a message of an earlier start is refused: its sender is no longer allowed")
            self._rooms.ledger.settle(found.entry, "refused")
            return
        step = plan(found, command=self._command_of(message) is not None, now=self._rooms.clock.now())
        log.info("message %d of an earlier start: %s", found.entry.id, step)
        accepted = self._admit(message, sender, found.entry, channel)
        if accepted is not None:
            accepted.slot.promised = True
            self._start(self._resume(accepted, found, step, channel), message)

    async def _resume(self, accepted: Accepted, found: Unfinished, step: Step, channel: Channel) -> None:
        accepted.slot.expect(self._answer(accepted, accepted.message))
        try:
            found = await tidied(found, channel)
        except Exception:
            log.exception("what a message of an earlier start left in its chat stays there")
        if accepted.slot.stopped:
            accepted.slot.release()
            return
        if found.doubtful:
            accepted.replier.doubt()
        if self._closing:  # the next start finds it as this one did
            accepted.slot.release()
            return
        accepted = await self._whole(accepted)
        found = replace(found, message=accepted.message)
        if step == "run":
            await self._prepare(accepted)
        else:
            turn = self._turn(accepted, remembered(found))
            accepted.slot.put(Recovered(self._turns, found, step, turn, accepted.replier))

    def _command_of(self, message: Message) -> Command | None:
        parsed = parse(message.text, self._rooms.commands)
        return parsed[0] if parsed else None

    def _start(self, intake: Coroutine[None, None, None], message: Message) -> None:
        task = self._group.create_task(_alone(intake), name=f"intake {message.id}")
        self._intakes.add(task)
        task.add_done_callback(self._intakes.discard)

    async def _intake(
        self, message: Message, verdict: Authorization, channel: Channel, received: asyncio.Future[None]
    ) -> None:
        try:
            entry = await self._rooms.ledger.accept(message, verdict.trust, commands=verdict.commands)
        except Exception as error:  # the adapter's to handle: nothing was accepted
            self._judge_ledger(str(error) or type(error).__name__)
            if not received.done():
                received.set_exception(error)
            return
        accepted = None
        try:
            if entry is not None:
                self._judge_ledger("")
                accepted = self._admit(message, verdict, entry, channel)
        finally:
            if not received.done():
                received.set_result(None)
        if accepted is not None:
            await self._prepare(await self._whole(accepted))

    def _judge_ledger(self, problem: str) -> None:
        """Tell whoever watches when messages can no longer be taken, and when they can again."""
        if problem != self._ledger_problem:
            self._ledger_problem = problem
            self._rooms.events.emit(ServiceState("ledger", "down" if problem else "up", problem))

    def _admit(self, message: Message, sender: Authorization, entry: Entry, channel: Channel) -> Accepted | None:
        """Fix the order: from here on the message has its place. None when that is the one of its album."""
        replier = Replier(channel, message, entry, self._replies)  # asks the adapter, so before there is a place
        self._rooms.events.emit(MessageReceived(message.key, message.id, sender.trust, preview(message.text)))
        part = Part(message, sender, entry)
        album = self._albums.take(part)
        if album is not None and album.first is not part:
            return None
        slot = self.lanes.reserve(message.key, message.id)
        return Accepted(message, channel, sender, entry, slot, replier, album)

    async def _prepare(self, accepted: Accepted) -> None:
        """Prepare one message for its turn; every way out fills or releases the slot."""
        self._telling.add(accepted.replier)
        try:
            if self._closing:
                await self._end(accepted, RESTARTING, "refused")
            elif (message := await self._with_media(accepted)) is None:
                return
            elif not message.text.strip() and not message.media:
                await self._end(accepted, EMPTY, "handled")
            elif (command := parse(message.text, self._rooms.commands)) is not None:
                await self._command(*command, accepted, message)
                self._settle(accepted, "handled")
            elif not self._enqueue(accepted, message):
                await self._end(accepted, FULL, "refused")
        except Exception:
            log.exception("a message broke on its way in")
            await self._end(accepted, BROKEN, "failed")
        finally:
            self._telling.discard(accepted.replier)

    async def _whole(self, accepted: Accepted) -> Accepted:
        """Wait for the rest of an album. A stop or a shutdown ends the wait and the whole intake with it."""
        album = accepted.album
        if album is None:
            return accepted
        first = self._answer(accepted, accepted.message)
        with accepted.slot.waiting(Held(self._albums, album, first.drop)):
            whole = await self._albums.whole(album)
        return replace(accepted, message=whole.message, sender=whole.sender, album=None)

    async def _with_media(self, accepted: Accepted) -> Message | None:
        """Return what the agent is to read; None when it failed, or a stop or a shutdown came first."""
        message, slot = accepted.message, accepted.slot
        if not message.attachments:
            return message
        unready = self._answer(accepted, message)
        if slot.stopped:
            slot.put(unready)
            return None
        try:
            async with slot.preparing(unready):
                ready = await self._rooms.media.prepare(message, accepted.channel)
                if ready.text != message.text:  # what was said outlives us like what was typed
                    rest = tuple(one for one in message.attachments if one.kind != "audio")
                    await self._rooms.ledger.heard(accepted.entry, replace(message, text=ready.text, attachments=rest))
        except MediaFailed as error:
            if slot.decided.is_set():
                return None
            log.error("message %d gets no turn: %s", accepted.entry.id, error)  # noqa: TRY400 - no bug of ours
            if error.user_text is None:
                self._settle(accepted, "failed", UNSEEN)
            else:
                await self._end(accepted, error.user_text, "failed")
            return None
        return None if slot.decided.is_set() else ready

    async def _end(self, accepted: Accepted, sentence: str, outcome: Outcome) -> None:
        """Answer with a sentence of our own and no turn."""
        await accepted.replier.tell(sentence, outcome)
        self._settle(accepted, outcome, "" if outcome == "handled" else sentence)

    async def _command(self, command: Command, rest: str, accepted: Accepted, message: Message) -> None:
        sender, replier, rooms = accepted.sender, accepted.replier, self._rooms
        if (refusal := why_refused(command, sender, message)) is not None:
            await replier.tell(refusal)
        elif command.run is None:
            await replier.tell(command.missing)
        else:
            await command.run(
                CommandContext(
                    message, sender, rest, replier, accepted.slot, self.lanes,
                    rooms.conversations, rooms.policy, rooms.approvals, rooms.commands,
                )
            )  # fmt: skip

    def _enqueue(self, accepted: Accepted, message: Message) -> bool:
        media_bytes = sum(len(one.data) for one in message.media)
        text_bytes = len(message.text.encode(errors="replace"))
        return accepted.slot.fill(self._answer(accepted, message), text_bytes, media_bytes)

    def _answer(self, accepted: Accepted, message: Message) -> Answer:
        return Answer(self._turns, self._turn(accepted, message), accepted.entry, accepted.replier)

    def _turn(self, accepted: Accepted, message: Message) -> Turn:
        trust = accepted.sender.trust
        turn = Turn(uuid.uuid4().hex, message, trust, is_attended(message), ledger_id=accepted.entry.id)
        return replace(turn, seam=self._seam(accepted))

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
            await self.ingest(replace(message, id=f"resumed-{uuid.uuid4().hex}"), channel)

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

    def use(self, *, streaming: Mapping[str, StreamTier], album_quiet_s: Mapping[str, float]) -> None:
        """Use what config states by channel, from the next message on, and for albums from the next album on."""
        self._replies = replace(self._replies, streaming=streaming)
        self._albums.use(album_quiet_s)

    def stop(self, key: ConversationKey, message_id: str | None = None) -> tuple[int, int]:
        """Stop a conversation, or one of its messages. Returns how many turns stopped and how many were dropped."""
        return self.lanes.stop_message(key, message_id) if message_id else self.lanes.stop(key)

    async def drain(self) -> None:
        """Take no new message and let the lanes end, for a bounded time; the next start takes up what still runs."""
        self._closing = True
        self._albums.use({})  # what comes now is refused, each by itself
        self.lanes.leave_unprepared()
        try:
            async with asyncio.timeout(DRAIN_S):
                await self.lanes.idle()
        except TimeoutError:
            log.warning("turns still run at shutdown; the next start takes them up")
            for replier in self._telling:
                replier.leave()
            for intake in self._intakes:
                intake.cancel()
            self.lanes.leave_all()


async def _alone(intake: Coroutine[None, None, None]) -> None:
    """Let the way in of one message break by itself; it is unfinished in the ledger and the next start takes it up."""
    try:
        await intake
    except Exception:
        log.exception("the way in of a message broke")


def _problem_of(message: Message, channel: Channel) -> str | None:
    """Name the first required field that is blank, or that no disk and no wire can hold; content may be both. A channel
    speaks for itself alone: what it hands over cannot pass for another's.
    """
    for name in REQUIRED:
        text = str(getattr(message, name))
        if not text.strip():
            return f"field {name} is missing"
        if valid_text(text) != text:
            return f"field {name} holds half a character"
    return None if message.channel == channel.name else f"channel {channel.name!r} handed it over"
