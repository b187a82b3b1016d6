"""The way back to the sender, bound to one accepted message. A turn may do nothing else to the outside.

Every text is a row of the ledger before it leaves. What cannot be written down is not sent: the next start finds the
message unfinished and takes it up again.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from fermix.agent.model import Delta
from fermix.clock import Clock
from fermix.errors import ChannelUnavailable, FermixError
from fermix.events import Events, MessageDelivered, preview
from fermix.gateway import prompts
from fermix.gateway.channel import Channel
from fermix.gateway.delivery import Delivered, Delivery
from fermix.gateway.ledger import Entry, Ledger, Outcome, Outgoing
from fermix.message import ApprovalPrompt, Message, Reply, Text

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReplyServices:
    """What every replier uses."""

    ledger: Ledger
    events: Events
    clock: Clock


class Replier:
    """A `ReplyPort` over one channel and one message."""

    def __init__(self, channel: Channel, message: Message, entry: Entry, services: ReplyServices) -> None:
        self._channel = channel
        self._message = message
        self._entry = entry
        self._ledger = services.ledger
        self._events = services.events
        self._delivery = Delivery(channel, message, services.ledger, services.clock)
        self._said: set[str] = set()
        self._effect_marked = False

    async def send(self, reply: Reply) -> None:
        """Deliver now, in the middle of a turn. Raises: ChannelUnavailable; Refused for a question that is too long."""
        if isinstance(reply, ApprovalPrompt):
            await prompts.put(reply, self._channel, self._message)
            return
        if not isinstance(reply, Text):
            await self._channel.send(self._message, reply, uuid.uuid4().hex)
            return
        rows = await self._ledger.outgoing(self._entry, [reply.text], settles=None, model=reply.model)
        if await self._deliver(rows, reply.text) != "sent":
            raise ChannelUnavailable("the message could not be delivered")
        self._said.add(reply.text)

    async def tell(self, text: str, settles: Outcome = "handled") -> Delivered:
        """Send a sentence of our own that is the last word on the message. Raises nothing that was foreseen."""
        try:
            rows = await self._ledger.outgoing(self._entry, [text], settles=settles)
        except FermixError as error:
            log.error("a reply cannot be written down and waits for the next start: %s", error)  # noqa: TRY400
            return "left"
        return await self._deliver(rows, text)

    async def answer(self, text: str, model: str) -> Delivered:
        """Send what the agent said; what this turn has sent already is not said twice (DLV-09)."""
        parts = [] if text in self._said else [text]
        try:
            rows = await self._ledger.outgoing(self._entry, parts, settles="answered", model=model, answer=text)
        except FermixError as error:
            log.error("an answer cannot be written down and waits for the next start: %s", error)  # noqa: TRY400
            return "left"
        return await self._deliver(rows, text)

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

    def stop(self) -> None:
        """Begin no further send; one on the wire is awaited."""
        self._delivery.stop()

    def leave(self) -> None:
        """End at once; the next start goes on."""
        self._delivery.leave()

    async def _deliver(self, rows: Sequence[Outgoing], text: str) -> Delivered:
        ended = await self._delivery.deliver(rows)
        if rows and ended != "left":
            self._report(ended, text)
        return ended

    def _report(self, ended: Delivered, text: str) -> None:
        key, error = self._message.key, "" if ended == "sent" else ended
        self._events.emit(MessageDelivered(key, self._message.id, ended == "sent", preview(text), error))
