"""Files and reactions on their way into a chat, in the middle of a turn. Called by the replier.

They are no rows of the ledger: their turn has been marked as one with an effect before, so it never runs again, and
nothing of it is sent twice by a restart. Each is tried once; whether it may have landed is told to whoever asked.
"""

from __future__ import annotations

import asyncio
import logging
import uuid

from fermix.errors import ChannelUnavailable, FermixError, Unusable
from fermix.gateway.channel import Channel
from fermix.gateway.leaks import is_cancelled
from fermix.message import File, Message, Reaction

log = logging.getLogger(__name__)

HANDOVER_S = 120.0  # some megabytes on a slow line; whether they landed is unknown afterwards


async def put(reply: File | Reaction, channel: Channel, message: Message) -> None:
    """Hand it to the channel. Raises: ChannelUnavailable, Unusable when the channel takes no such thing."""
    try:
        async with asyncio.timeout(HANDOVER_S):
            await _send(reply, channel, message)
    except TimeoutError as error:
        raise ChannelUnavailable(f"no answer within {HANDOVER_S:g} s", landed=True) from error
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise ChannelUnavailable("the send broke off by itself", landed=True) from error
    except FermixError:
        raise
    except Exception as error:  # an adapter's bug ends no turn
        log.exception("channel %s broke in a send", channel.name)
        raise ChannelUnavailable(f"the channel broke: {error!r}", landed=True) from error


async def _send(reply: File | Reaction, channel: Channel, message: Message) -> None:
    abilities = channel.abilities
    if isinstance(reply, File):
        if not abilities.files:
            raise Unusable(f"channel {channel.name} takes no files")
        await channel.send(message, reply, uuid.uuid4().hex)
    elif abilities.reactions is None or reply.emoji not in abilities.reactions.emoji:
        raise Unusable(f"channel {channel.name} takes no such reaction")
    else:
        await abilities.reactions.react(message, reply.emoji)
