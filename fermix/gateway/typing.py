"""Show that an answer is being written, for as long as a turn runs. Called by the lane's work.

What must stay true: a call that fails is tried again at the next beat and never touches the turn.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, nullcontext

from fermix.clock import Clock
from fermix.errors import ChannelUnavailable
from fermix.gateway.background import background
from fermix.gateway.channel import Channel, Typing
from fermix.message import Message

log = logging.getLogger(__name__)

BEAT_S = 4.0  # what a call shows lasts about five seconds on every platform
CALL_S = 10.0
MOST_BEATS = 900  # an hour, which is the longest that a turn may take


def typing(channel: Channel, message: Message, clock: Clock) -> AbstractAsyncContextManager[None]:
    """Show it until the block is left; does nothing where the channel cannot."""
    sign = channel.abilities.typing
    return nullcontext() if sign is None else background(_beat(sign, message, clock), f"typing {message.id}")


async def _beat(sign: Typing, message: Message, clock: Clock) -> None:
    for _ in range(MOST_BEATS):
        await clock.sleep(max(BEAT_S, await _call(sign, message)))


async def _call(sign: Typing, message: Message) -> float:
    """Make one call; returns for how long the platform wants none, in seconds."""
    try:
        async with asyncio.timeout(CALL_S):
            await sign.show_typing(message)
    except TimeoutError:
        log.info("a typing sign to %s took longer than %g s", message.channel, CALL_S)
    except ChannelUnavailable as error:
        log.info("a typing sign to %s failed: %s", message.channel, error)
        return error.retry_after_s or 0.0
    except Exception:
        log.exception("channel %s broke in a typing sign", message.channel)
    return 0.0
