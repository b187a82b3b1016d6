"""The way back to the sender, bound to one message. A turn may do nothing else to the outside."""

from __future__ import annotations

import logging

from fermix.agent.model import Delta
from fermix.errors import ChannelUnavailable
from fermix.events import Events, MessageDelivered, preview
from fermix.gateway.channel import Channel
from fermix.message import Message, Reply, Text

log = logging.getLogger(__name__)


class Replier:
    """A `ReplyPort` over one channel and one message."""

    def __init__(self, channel: Channel, message: Message, events: Events) -> None:
        self._channel = channel
        self._message = message
        self._events = events

    async def send(self, reply: Reply) -> None:
        """Deliver now. Raises: ChannelUnavailable."""
        text = preview(reply.text) if isinstance(reply, Text) else type(reply).__name__
        try:
            await self._channel.send(self._message, reply)
        except ChannelUnavailable as error:
            self._events.emit(MessageDelivered(self._message.key, self._message.id, False, text, str(error)))
            raise
        self._events.emit(MessageDelivered(self._message.key, self._message.id, True, text))

    async def tell(self, text: str) -> None:
        """Send a sentence of our own; a channel that cannot deliver it is logged."""
        try:
            await self.send(Text(text))
        except ChannelUnavailable:
            log.exception("a reply could not be delivered")

    def stream(self, delta: Delta) -> None:
        if (live := self._channel.abilities.live) is not None:
            live.show(self._message, delta)
