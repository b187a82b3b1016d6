"""The way back to the sender, bound to one accepted message. A turn may do nothing else to the outside.

Every text is a row of the ledger before it leaves. What cannot be written down is not sent: the next start finds the
message unfinished and takes it up again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from fermix.agent.model import Delta
from fermix.clock import Clock
from fermix.errors import ChannelUnavailable, FermixError
from fermix.events import Events, MessageDelivered, preview
from fermix.gateway import approval_prompts, files_and_reactions
from fermix.gateway.blocks import BlockStream
from fermix.gateway.channel import Channel, StreamTier
from fermix.gateway.delivery import MARK, Delivered, Delivery
from fermix.gateway.drafts import DraftStream
from fermix.gateway.ledger import UNKNOWN_DRAFT, Entry, Ledger, Outcome, Outgoing
from fermix.gateway.stream import Reader, Room, Silence, Stream, resolve_tier
from fermix.gateway.text import split
from fermix.gateway.typing import typing
from fermix.message import ApprovalPrompt, Message, Reply, Text

log = logging.getLogger(__name__)

WRITING_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0)  # a backup holds the database so long, a full disk may be tidied


@dataclass(frozen=True, slots=True)
class ReplyServices:
    """What every replier uses. `streaming` is what config states, by channel."""

    ledger: Ledger
    events: Events
    clock: Clock
    streaming: Mapping[str, StreamTier] = field(default_factory=dict[str, StreamTier])


class Replier:
    """A `ReplyPort` over one channel and one message."""

    def __init__(self, channel: Channel, message: Message, entry: Entry, services: ReplyServices) -> None:
        self._channel = channel
        self._message = message
        self._entry = entry
        self._ledger = services.ledger
        self._events = services.events
        self._services = services
        self._delivery = Delivery(channel, message, services.ledger, services.clock)
        self._delivering = asyncio.Lock()
        self._room = _room_of(channel)
        self._stream: Stream = Silence(self._room)
        self._said: set[str] = set()
        self._effect_marked = False
        self._doubtful = False
        self._left = False
        self.owes = False  # whether the last word could not be written down: the next start has it

    def doubt(self) -> None:
        """An earlier process may have left a draft in the chat that nobody can remove: the answer says so."""
        self._doubtful = True

    @asynccontextmanager
    async def answering(self) -> AsyncGenerator[None]:
        """Surround the turn that answers: typing is shown, and its text as the channel and config allow."""
        self._stream = self._opened()
        async with typing(self._channel, self._message, self._services.clock), self._stream.running():
            yield

    async def send(self, reply: Reply) -> None:
        """Deliver now, in the middle of a turn. Raises: ChannelUnavailable, Unusable; Refused for a long question."""
        if isinstance(reply, ApprovalPrompt):
            await approval_prompts.put(reply, self._channel, self._message)
            return
        if not isinstance(reply, Text):
            async with self._delivering:
                await files_and_reactions.put(reply, self._channel, self._message)
            return
        rows = await self._ledger.outgoing(self._entry, self._split(reply.text), settles=None, model=reply.model)
        if await self._deliver(rows, reply.text) != "sent":
            raise ChannelUnavailable("the message could not be delivered")
        self._said.add(reply.text.strip())

    async def tell(self, text: str, settles: Outcome = "handled") -> Delivered:
        """Send a sentence of our own that is the last word on the message. Raises nothing."""
        self.owes = True
        try:
            rows = await self._written_down(self._split(text), settles=settles)
        except FermixError as error:
            log.error("a reply cannot be written down and waits for the next start: %s", error)  # noqa: TRY400
            return "left"
        except Exception:
            log.exception("a reply cannot be written down and waits for the next start")
            return "left"
        ended = await self._deliver(rows, text)
        self.owes = ended == "left"
        return ended

    async def answer(self, text: str, model: str) -> Delivered:
        """Send what the agent said; what this turn has sent already is not said twice (DLV-09)."""
        parts = await self._stream.finish("" if text.strip() in self._said else text)
        if self._doubtful or self._stream.doubtful:
            parts = [f"{MARK}{part}" if number == 0 else part for number, part in enumerate(parts)]
        try:
            rows = await self._written_down(parts, settles="answered", model=model, answer=text)
        except FermixError as error:
            log.error("an answer cannot be written down and waits for the next start: %s", error)  # noqa: TRY400
            return "left"
        sealed = await self._sealed() if rows else None
        if sealed is not None:
            self._ledger.sealed(self._entry, rows[0], sealed)
        elif rows and self._stream.doubtful:
            rows = [replace(rows[0], marked=True), *rows[1:]]
        ended = await self._send_rows(rows[1:] if sealed is not None else rows)
        if ended != "left":
            if rows:
                self._report(ended, text)
            await past_failing(self._stream.sweep(), "removing drafts")
        return ended

    async def _sealed(self) -> str | None:
        """Turn the draft into the first part of the answer; what breaks is taken back, and the answer comes whole."""
        try:
            return await self._stream.seal()
        except Exception:
            log.exception("a draft could not be sealed")
            await past_failing(self._stream.abandon(), "taking back a draft")
            return None

    async def abandon(self) -> None:
        """There is no answer: take back what stood for one."""
        await self._stream.abandon()

    async def resume(self, rows: Sequence[Outgoing]) -> Delivered:
        """Finish the replies that an earlier process began."""
        ended = await self._delivery.resume(rows)
        if rows and ended != "left":
            self._report(ended, rows[-1].text)
        return ended

    async def effect(self, name: str) -> None:
        """Write down, once a turn, that it is about to change something. Raises: NeedsOperator or Unavailable."""
        if not self._effect_marked:
            await self._ledger.effect(self._entry, name)
            self._effect_marked = True

    def stream(self, delta: Delta) -> None:
        if (live := self._channel.abilities.live) is not None:
            live.show(self._message, delta)
        self._stream.show(delta)

    def stop(self) -> None:
        """Begin no further send; one on the wire is awaited."""
        self._stream.stop()
        self._delivery.stop()

    def leave(self) -> None:
        """End at once; the next start goes on."""
        self._left = True
        self._stream.leave()
        self._delivery.leave()

    def _opened(self) -> Stream:
        """Resolve how this answer is shown, once."""
        channel, services = self._channel, self._services
        match resolve_tier(channel, services.streaming.get(channel.name)):
            case "draft" if self._doubtful:
                return Silence(self._room)
            case "draft" if (drafts := channel.abilities.drafts) is not None:
                reader = Reader(channel, self._message, self._room)
                return DraftStream(reader, drafts, services.clock, self._note_bubbles, self._announce_draft)
            case "block":
                return BlockStream(self._room, services.clock, self._post_block)
            case _:
                return Silence(self._room)

    def _note_bubbles(self, live: str | None, others: Sequence[str]) -> None:
        bubbles = (live or "", *others)
        self._ledger.draft(self._entry, "\n".join(bubbles) if any(bubbles) else None)

    async def _announce_draft(self, key: str, others: Sequence[str]) -> None:
        await self._ledger.drafting(self._entry, "\n".join((f"{UNKNOWN_DRAFT}{key}", *others)))

    async def _post_block(self, text: str) -> bool:
        try:
            rows = await self._ledger.outgoing(self._entry, [text], settles=None)
        except FermixError as error:
            log.error("a block cannot be written down; the answer comes whole: %s", error)  # noqa: TRY400
            return False
        return await self._deliver(rows, text) == "sent"

    def _split(self, text: str) -> Sequence[str]:
        return split(text, self._room.limit, self._room.measure)

    async def _written_down(
        self, texts: Sequence[str], *, settles: Outcome, model: str | None = None, answer: str | None = None
    ) -> Sequence[Outgoing]:
        """Write the last word on a message down, with some patience. Raises as `Ledger.outgoing` does."""
        pauses_s = iter(WRITING_PAUSES_S)
        while True:
            try:
                return await self._ledger.outgoing(
                    self._entry, texts, settles=settles, model=model, answer=answer, on_its_way=not self._stream.seals
                )
            except FermixError:
                pause_s = next(pauses_s, None)
                if pause_s is None or self._left or not await self._delivery.pause(pause_s):
                    raise

    async def _send_rows(self, rows: Sequence[Outgoing]) -> Delivered:
        async with self._delivering:
            return "left" if self._left else await self._delivery.deliver(rows)

    async def _deliver(self, rows: Sequence[Outgoing], text: str) -> Delivered:
        ended = await self._send_rows(rows)
        if rows and ended != "left":
            self._report(ended, text)
        return ended

    def _report(self, ended: Delivered, text: str) -> None:
        key, error = self._message.key, "" if ended == "sent" else ended
        self._events.emit(MessageDelivered(key, self._message.id, ended == "sent", preview(text), error))


async def past_failing(step: Awaitable[None], doing: str) -> None:
    """Do what must not keep a message from being settled: what it raises is logged."""
    try:
        await step
    except Exception:
        log.exception("%s failed", doing)


def _room_of(channel: Channel) -> Room:
    """Leave room for the mark of a possible duplicate, which delivery may have to add (TGM-10)."""
    limit = channel.text_limit
    return Room(None if limit is None else limit - channel.measure(MARK), channel.measure)
