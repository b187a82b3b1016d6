"""The one way in. `ingest` and `_intake` hold the steps in their order; a reviewer reads the trust model here.

recover  take up what an earlier process left                         before anybody is heard
ingest   normalize, authorize, write down, reserve the lane's place   the adapter acknowledges when it returns
intake   reply path, album, media, empty check, commands, enqueue     one task per message, from the write on
Answer   run the turn, deliver, commit, settle                        in the lane, one at a time
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

from fermix.agent.model import valid_text
from fermix.events import MessageReceived, ServiceState, preview
from fermix.gateway.albums import Albums, Part
from fermix.gateway.answer import BROKEN, TurnServices
from fermix.gateway.authorize import Authorization, Denial, described
from fermix.gateway.channel import Channel, StreamTier
from fermix.gateway.command import parse
from fermix.gateway.intake import Accepted, IntakeSteps, Rooms
from fermix.gateway.leaks import is_cancelled
from fermix.gateway.ledger import Entry, Unfinished
from fermix.gateway.queue import Lanes
from fermix.gateway.recovery import Recovered, Step, plan, remembered, sender_now, tidied, with_stops_obeyed
from fermix.gateway.replies import Replier, ReplyServices
from fermix.message import ConversationKey, Message

log = logging.getLogger(__name__)

EMPTY = "Your message looks empty — send some text or media I can read."
RESTARTING = "I'm restarting — please send your message again in a moment."
FULL = "Too many messages wait for me here. Please send this one again when I have answered some of them."
NO_REQUEST = frozenset({"reaction", "join"})  # authorized like all, but nothing is asked of us
REQUIRED = ("id", "channel", "chat_id", "reply_target", "thread")
DRAIN_S = 6.0  # running turns may end by themselves before a shutdown leaves them; the whole shutdown has 10 s


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
        self._steps = IntakeSteps(rooms, self._turns, self._albums, self.lanes, self.ingest)

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
        self._start(message, partial(self._intake, message, verdict, channel, received))
        await received  # not the task: an adapter that is cancelled here does not take an accepted message along

    async def _intake(
        self, message: Message, verdict: Authorization, channel: Channel, received: asyncio.Future[None]
    ) -> None:
        try:
            entry = await self._rooms.ledger.accept(message, verdict.trust, commands=verdict.commands)
        except Exception as error:  # the adapter's to handle: nothing was accepted
            self._report_ledger(str(error) or type(error).__name__)
            if not received.done():
                received.set_exception(error)
            return
        accepted = None
        try:
            if entry is not None:
                self._report_ledger("")
                accepted = self._admit(message, verdict, entry, channel)
        finally:
            if not received.done():
                received.set_result(None)
        if accepted is not None:
            await self._prepare(await self._steps.whole(accepted))

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
                await self._steps.end(accepted, RESTARTING, "refused")
            elif (message := await self._steps.with_media(accepted)) is None:
                return
            elif not message.text.strip() and not message.media:
                await self._steps.end(accepted, EMPTY, "handled")
            elif (command := parse(message.text, self._rooms.commands)) is not None:
                await self._steps.command(accepted, message, *command)
            elif not self._steps.enqueue(accepted, message):
                await self._steps.end(accepted, FULL, "refused")
        except (Exception, asyncio.CancelledError):
            if is_cancelled():
                raise
            log.exception("a message broke on its way in")
            await self._steps.end(accepted, BROKEN, "failed")
        finally:
            self._telling.discard(accepted.replier)

    async def recover(self, channels: Mapping[str, Channel]) -> None:
        """Take up what an earlier process left, each message in its old place. Called before any channel is heard.

        Raises: NeedsOperator or Unavailable when the ledger cannot be read.
        """
        found = await self._rooms.ledger.unfinished()
        self._rooms.conversations.expect(one.entry.id for one in found)
        waiting = Counter(one.message.channel for one in found if one.message.channel not in channels)
        for name, count in waiting.items():
            log.warning("messages of an earlier start that wait for channel %r: %d", name, count)
        for one in with_stops_obeyed(found, self._rooms.authorizer, self._rooms.commands):
            if one.message.channel in channels:
                self._take_up(one, channels[one.message.channel])

    def _take_up(self, found: Unfinished, channel: Channel) -> None:
        message = found.message if found.untouched else replace(found.message, album=None)
        sender = sender_now(found, self._rooms.authorizer)
        if sender is None:
            log.warning("a message of an earlier start is refused: its sender is no longer allowed")
            self._rooms.ledger.settle(found.entry, "refused")
            return
        step = plan(found, command=parse(message.text, self._rooms.commands) is not None, now=self._rooms.clock.now())
        log.info("message %d of an earlier start: %s", found.entry.id, step)
        accepted = self._admit(message, sender, found.entry, channel)
        if accepted is not None:
            accepted.slot.promised = True
            self._start(message, partial(self._resume, accepted, found, step, channel))

    async def _resume(self, accepted: Accepted, found: Unfinished, step: Step, channel: Channel) -> None:
        accepted.slot.expect(self._recovered(accepted, found, step))
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
        accepted = await self._steps.whole(accepted)
        found = replace(found, message=accepted.message)
        if step == "run":
            await self._prepare(accepted)
        else:
            accepted.slot.put(self._recovered(accepted, found, step))

    def _recovered(self, accepted: Accepted, found: Unfinished, step: Step) -> Recovered:
        turn = self._steps.turn(accepted, remembered(found))
        return Recovered(self._turns, found, step, turn, accepted.replier)

    def _start(self, message: Message, intake: Callable[[], Awaitable[None]]) -> None:
        task = self._group.create_task(_alone(intake), name=f"intake {message.id}")
        self._intakes.add(task)
        task.add_done_callback(self._intakes.discard)

    def _report_ledger(self, problem: str) -> None:
        """Tell whoever watches when messages can no longer be taken, and when they can again."""
        if problem != self._ledger_problem:
            self._ledger_problem = problem
            self._rooms.events.emit(ServiceState("ledger", "down" if problem else "up", problem))

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


async def _alone(intake: Callable[[], Awaitable[None]]) -> None:
    """Let the way in of one message break by itself; it is unfinished in the ledger and the next start takes it up."""
    try:
        await intake()
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
