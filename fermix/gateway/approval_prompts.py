"""How a question to the owner is put on a channel: with buttons where it has them, as text everywhere else.

It is sent at once and never written down: after a restart it could not be answered any more.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from fermix.errors import Refused
from fermix.gateway.channel import Channel
from fermix.message import ApprovalPrompt, Message, Text


async def put(prompt: ApprovalPrompt, channel: Channel, message: Message) -> None:
    """Show the whole question. Raises: ChannelUnavailable, Refused when it is too long for one message."""
    buttons = channel.abilities.buttons
    shown = _worded(prompt, withhold=buttons is not None and not message.private)
    if channel.text_limit is not None and channel.measure(shown.text) > channel.text_limit:
        problem = "the question is too long to show whole on this channel"
        raise Refused(problem, user_text=f"{problem}; ask on your own machine")
    if buttons is not None:
        await buttons.ask(message, shown)
    else:
        await channel.send(message, Text(shown.text, waits=prompt.waits), uuid.uuid4().hex)


def _worded(prompt: ApprovalPrompt, *, withhold: bool) -> ApprovalPrompt:
    """Add how to answer; in a chat that others read, the buttons do without the code."""
    if withhold:
        how = f"Answer with the buttons within a minute, or send `/confirm {prompt.id}` to me alone or at my machine."
        return replace(prompt, text=f"{prompt.text}\n\n{how}", token="")
    how = f"Approve with `/confirm {prompt.token}` within a minute, or refuse with `/deny {prompt.token}`."
    return replace(prompt, text=f"{prompt.text}\n\n{how}")
