"""Send the parts of one reply in their order, each of them once as far as anybody can know.

Called by the replier with rows that are on disk. A send that surely failed is tried again, bounded in tries and time.
A send whose fate is unknown is repeated with the same key where the platform honours one, looked up where it can be
read back, and elsewhere sent once more with a visible mark. Nothing is ever sent twice without one of the three.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fermix.clock import Clock
from fermix.errors import ChannelUnavailable, FermixError, LimitReached
from fermix.gateway.channel import Channel, Lookup
from fermix.gateway.leaks import is_cancelled
from fermix.gateway.ledger import Ledger, Outgoing
from fermix.message import Message, Text

log = logging.getLogger(__name__)

TRIES = 5
FIRST_DELAY_S = 1.0  # doubled between tries; a platform that names a time is obeyed
LONGEST_DELIVERY_S = 180.0  # of one part with its pauses; a lane must not stand for ever
SEND_S = 30.0  # one send; whether it landed is unknown afterwards
MARK = "(possible duplicate) "

Delivered = Literal["sent", "failed", "stopped", "left"]
"""How a reply ended; "left" is found again by the next start."""

_Fate = Literal["ready", "unsent", "unknown"]


@dataclass(slots=True)
class _Sending:
    """One part on its way. "ready" is marked as on its way and was not tried yet."""

    part: Outgoing
    fate: _Fate


class Delivery:
    """One at a time for one message."""

    def __init__(self, channel: Channel, message: Message, ledger: Ledger, clock: Clock) -> None:
        self._channel = channel
        self._message = message
        self._ledger = ledger
        self._clock = clock
        self._delivering: asyncio.Task[Delivered] | None = None
        self._pausing: asyncio.Task[None] | None = None
        self._stopped = False
        self._cut_off = False  # as stopped, for the reply at hand only

    async def deliver(self, parts: Sequence[Outgoing]) -> Delivered:
        """Send a reply that was just written down: its first row already counts as on its way."""
        return await self._bounded(
            [_Sending(part, "ready" if part.state == "in_flight" else "unsent") for part in parts]
        )

    async def resume(self, parts: Sequence[Outgoing]) -> Delivered:
        """Finish what an earlier process began."""
        if any(part.state == "failed" for part in parts):
            return "failed"
        return await self._bounded(
            [
                _Sending(part, "unknown" if part.state == "in_flight" else "unsent")
                for part in parts
                if part.state != "sent"
            ]
        )

    def stop(self) -> None:
        """Begin no further send; one on the wire is awaited and recorded."""
        self._stopped = True
        self._end_pause()

    def leave(self) -> None:
        """End at once: the daemon goes, and what is open is taken up by the next one."""
        self._end_pause()
        if self._delivering is not None:
            self._delivering.cancel()

    async def _bounded(self, waiting: Sequence[_Sending]) -> Delivered:
        async with asyncio.TaskGroup() as group:
            self._delivering = group.create_task(self._all(waiting), name=f"delivery {self._message.id}")
            await self._outlast(self._delivering)
        task, self._delivering = self._delivering, None
        return "left" if task.cancelled() else task.result()

    async def _outlast(self, delivering: asyncio.Task[Delivered]) -> None:
        """Wait for a delivery; the end of the tool that sends it lets what is on the wire arrive and be recorded."""
        self._cut_off = False
        try:
            await asyncio.wait([delivering])
        except asyncio.CancelledError:
            self._cut_off = True
            self._end_pause()
            await asyncio.wait([delivering])
            raise

    async def _all(self, waiting: Sequence[_Sending]) -> Delivered:
        for number, sending in enumerate(waiting):
            try:
                ended, reason = await self._patiently(sending), "stopped"
            except FermixError as error:
                log.warning("a reply to %s could not be delivered: %s", self._message.channel, error)
                ended, reason = "failed", str(error)
            except Exception as error:
                log.exception("the delivery of a reply to %s broke", self._message.channel)
                ended, reason = "failed", repr(error)
            if ended != "sent":
                for left in waiting[number:]:
                    self._ledger.failed(left.part, reason)
                return ended
        return "sent"

    async def _patiently(self, sending: _Sending) -> Delivered:
        """Send one part. Raises: FermixError when it is given up."""
        began_at = self._clock.monotonic()
        for tried in range(1, TRIES + 1):
            if self._ends():
                break
            try:
                platform_id = await self._attempt(sending)
            except ChannelUnavailable as error:
                self._note(sending, error)
                delay_s = error.retry_after_s or FIRST_DELAY_S * 2 ** (tried - 1)
                if tried == TRIES or self._clock.monotonic() - began_at + delay_s > LONGEST_DELIVERY_S:
                    raise
                await self.pause(delay_s)
            else:
                self._ledger.sent(sending.part, platform_id)
                return "sent"
        return "stopped"

    def _note(self, sending: _Sending, error: ChannelUnavailable) -> None:
        sending.fate = "unknown" if error.landed else "unsent"
        if error.landed:
            log.warning("a reply to %s may have landed or not: %s", self._message.channel, error)
        else:
            self._ledger.unsent(sending.part, str(error))

    async def _attempt(self, sending: _Sending) -> str:
        """Make sure, once, that the part is in the chat; returns the platform's id. Raises: FermixError."""
        abilities = self._channel.abilities
        if sending.fate == "unsent":
            await self._mark(sending, sending.part)
        elif sending.fate == "unknown" and abilities.lookup is not None:
            if (found := await self._find(abilities.lookup, sending.part)) is not None:
                return found
        elif sending.fate == "unknown" and not abilities.idempotent:
            if sending.part.marked:
                raise LimitReached("sent twice, and nobody knows whether either landed", limit="duplicates")
            await self._mark(sending, replace(sending.part, marked=True))
        return await self._send(sending.part)

    async def _mark(self, sending: _Sending, part: Outgoing) -> None:
        """Write down that a send is about to start; when that fails it does not, and is as it was."""
        try:
            await self._ledger.sending(part)
        except FermixError as error:
            raise ChannelUnavailable(f"it cannot be written down: {error}", landed=sending.fate == "unknown") from error
        sending.part = part

    async def _send(self, part: Outgoing) -> str:
        says_so = not part.marked or part.text.startswith(MARK)
        reply = Text(part.text if says_so else f"{MARK}{part.text}", part.model)
        try:
            async with asyncio.timeout(SEND_S):
                return await self._channel.send(self._message, reply, part.key)
        except TimeoutError as error:
            raise ChannelUnavailable(f"no answer within {SEND_S:g} s", landed=True) from error
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            raise ChannelUnavailable("the send broke off by itself", landed=True) from error
        except FermixError:
            raise
        except Exception as error:  # an adapter's bug ends neither the lane nor the daemon
            log.exception("channel %s broke in a send", self._channel.name)
            raise ChannelUnavailable(f"the channel broke: {error!r}", landed=True) from error

    async def _find(self, lookup: Lookup, part: Outgoing) -> str | None:
        """Look whether a send landed; while that cannot be told, it stays unknown."""
        try:
            async with asyncio.timeout(SEND_S):
                return await lookup.find(self._message, part.key)
        except (ChannelUnavailable, TimeoutError, asyncio.CancelledError) as error:
            if is_cancelled():
                raise
            raise ChannelUnavailable(f"it cannot be looked up: {error}", landed=True) from error

    def _ends(self) -> bool:
        return self._stopped or self._cut_off

    def _end_pause(self) -> None:
        if self._pausing is not None:
            self._pausing.cancel()

    async def pause(self, seconds: float) -> bool:
        """Wait before the next try; a stop ends the wait. Returns whether there may be one."""
        if not self._ends():
            async with asyncio.TaskGroup() as group:
                self._pausing = group.create_task(self._clock.sleep(seconds), name="delivery pause")
            self._pausing = None
        return not self._ends()
