"""The one way in. `ingest` and `intake` hold the steps in their order; a reviewer reads the trust model here.

ingest   normalize, authorize, reserve the place in the lane      the adapter acknowledges when it returns
intake   reply path, empty check, commands, enqueue               one task per message
Answer   run the turn, deliver, commit                            in the lane, one at a time
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, Protocol, assert_never

from fermix.agent.turn import Cancelled, Completed, Failed, ReplyPort, Turn, TurnOutcome
from fermix.clock import Clock
from fermix.errors import ChannelUnavailable
from fermix.events import Events, MessageReceived, MessageSettled, preview
from fermix.gateway.authorize import Authorization, Authorizer, Denial
from fermix.gateway.channel import Channel
from fermix.gateway.command import Command, CommandContext, Conversations, parse
from fermix.gateway.queue import Lanes, Slot
from fermix.gateway.replies import Replier
from fermix.message import ConversationKey, Message, Text

log = logging.getLogger(__name__)

EMPTY = "Your message looks empty — send some text or media I can read."
RESTARTING = "I'm restarting — please send your message again in a moment."
BROKEN = "Something went wrong on my side; the log has the details. Please try again."
REQUIRED = ("id", "channel", "chat_id", "reply_target")
DRAIN_S = 6.0  # running turns may end by themselves before a shutdown stops them; the whole shutdown has 10 s


class Agent(Protocol):
    """What answers. `run` never raises but for cancellation; one of the other two follows each run."""

    async def run(self, turn: Turn, port: ReplyPort) -> TurnOutcome: ...

    async def commit(self, turn: Turn, outcome: Completed) -> None: ...

    async def abandon(self, turn: Turn, outcome: Cancelled | Failed) -> None: ...


@dataclass(frozen=True, slots=True)
class Rooms:
    """What the gateway works with, wired by the composition root."""

    agent: Agent
    authorizer: Authorizer
    conversations: Conversations
    commands: Sequence[Command]
    events: Events
    clock: Clock


class Gateway:
    """Made by `open`; leaving it drains the lanes."""

    def __init__(self, rooms: Rooms, group: asyncio.TaskGroup) -> None:
        self._rooms = rooms
        self._group = group
        self._closing = False
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
        """Take one message. When this returns the channel may tell its platform that it was received."""
        if (missing := _missing_field(message)) is not None:
            log.error("message dropped: field %s is missing (channel %r)", missing, message.channel)
            return
        verdict = self._rooms.authorizer.resolve(message)
        if isinstance(verdict, Denial):
            log.warning(
                "denied (%s): sender %r named %r in chat %r on channel %r",
                verdict.reason, message.sender.id, message.sender.name, message.chat_id, message.channel,
            )  # fmt: skip
            return
        replier = Replier(channel, message, self._rooms.events)
        if self._closing:
            await replier.tell(RESTARTING)
            self._rooms.events.emit(MessageSettled(message.key, message.id, "failed", 0.0, RESTARTING))
            return
        self._rooms.events.emit(MessageReceived(message.key, message.id, verdict.trust, preview(message.text)))
        slot = self.lanes.reserve(message.key, message.id)
        self._group.create_task(self._intake(message, verdict, replier, slot), name=f"intake {message.id}")

    async def _intake(self, message: Message, verdict: Authorization, replier: Replier, slot: Slot) -> None:
        """Prepare one message for its turn; every way out fills or releases the slot."""
        settled = MessageSettled(message.key, message.id, "handled", 0.0)
        try:
            if not message.text.strip() and not message.media:
                await replier.tell(EMPTY)
            elif (command := parse(message.text, self._rooms.commands)) is not None:
                await self._command(*command, message, verdict, replier, slot)
            else:
                slot.fill(Answer(self._rooms, self._turn(message, verdict), replier))
                return
        except Exception:
            log.exception("a message broke on its way in")
            await replier.tell(BROKEN)
            settled = MessageSettled(message.key, message.id, "failed", 0.0, BROKEN)
        slot.release()
        self._rooms.events.emit(settled)

    async def _command(
        self, command: Command, rest: str, message: Message, verdict: Authorization, replier: Replier, slot: Slot
    ) -> None:
        if not command.allows(verdict.trust):
            await replier.tell(f"/{command.name} is for the owner of this agent.")
            return
        rooms = self._rooms
        await command.run(
            CommandContext(message, verdict.trust, rest, replier, slot, self.lanes, rooms.conversations, rooms.commands)
        )

    def _turn(self, message: Message, verdict: Authorization) -> Turn:
        attended = message.origin is None or message.origin.attended
        return Turn(id=uuid.uuid4().hex, message=message, trust=verdict.trust, attended=attended)

    def stop(self, key: ConversationKey, message_id: str | None = None) -> tuple[int, int]:
        """Stop a conversation, or one of its messages. Returns how many turns stopped and how many were dropped."""
        return self.lanes.stop_message(key, message_id) if message_id else self.lanes.stop(key)

    async def drain(self) -> None:
        """Take no new message and let the lanes end, for a bounded time; then stop what still runs."""
        self._closing = True
        try:
            async with asyncio.timeout(DRAIN_S):
                await self.lanes.idle()
        except TimeoutError:
            log.warning("turns still run at shutdown; they are stopped")
            self.lanes.stop_all()


class Answer:
    """The work of one turn: run, deliver, commit. A stop ends only the run; a reply under way is finished."""

    def __init__(self, rooms: Rooms, turn: Turn, replier: Replier) -> None:
        self._rooms = rooms
        self._turn = turn
        self._replier = replier
        self._running: asyncio.Task[TurnOutcome] | None = None
        self._stopped = False

    async def run(self) -> None:
        started = self._rooms.clock.monotonic()
        outcome = await self._outcome()
        settled = await self._settle(outcome)
        usage = outcome.usage if isinstance(outcome, Completed) else None
        self._rooms.events.emit(
            MessageSettled(
                self._turn.key,
                self._turn.message.id,
                _kind(settled),
                self._rooms.clock.monotonic() - started,
                settled.user_text if isinstance(settled, Failed) else "",
                usage.input_tokens if usage else 0,
                usage.output_tokens if usage else 0,
            )
        )

    def stop(self) -> None:
        self._stopped = True
        if self._running is not None:
            self._running.cancel()

    def drop(self) -> None:
        self._rooms.events.emit(MessageSettled(self._turn.key, self._turn.message.id, "cancelled", 0.0))

    async def _outcome(self) -> TurnOutcome:
        async with asyncio.TaskGroup() as group:
            self._running = group.create_task(self._guarded(), name=f"turn {self._turn.id}")
            if self._stopped:
                self._running.cancel()
        task, self._running = self._running, None
        return Cancelled() if task.cancelled() else task.result()

    async def _guarded(self) -> TurnOutcome:
        try:
            return await self._rooms.agent.run(self._turn, self._replier)
        except Exception as error:
            log.exception("a turn broke")
            return Failed(BROKEN, repr(error))

    async def _settle(self, outcome: TurnOutcome) -> TurnOutcome:
        """Deliver and commit; returns the outcome as it stands afterwards."""
        match outcome:
            case Completed():
                return await self._deliver(outcome)
            case Failed():
                await self._replier.tell(outcome.user_text)
                await self._rooms.agent.abandon(self._turn, outcome)
            case Cancelled():
                await self._rooms.agent.abandon(self._turn, outcome)
            case _:
                assert_never(outcome)
        return outcome

    async def _deliver(self, outcome: Completed) -> TurnOutcome:
        try:
            await self._replier.send(Text(outcome.text, outcome.model))
        except ChannelUnavailable as error:
            log.exception("a reply could not be delivered")
            failed = Failed("The reply could not be delivered.", repr(error))
            await self._rooms.agent.abandon(self._turn, failed)
            return failed
        await self._rooms.agent.commit(self._turn, outcome)
        return outcome


def _kind(outcome: TurnOutcome) -> Literal["completed", "cancelled", "failed"]:
    match outcome:
        case Completed():
            return "completed"
        case Cancelled():
            return "cancelled"
        case Failed():
            return "failed"
        case _:
            assert_never(outcome)


def _missing_field(message: Message) -> str | None:
    """Name the first required field that is blank; content may be."""
    return next((name for name in REQUIRED if not str(getattr(message, name)).strip()), None)
