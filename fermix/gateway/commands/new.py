"""`/new`: a fresh session of this conversation. What was said before is kept on disk but no longer read."""

from __future__ import annotations

from fermix.gateway.command import Command, CommandContext


async def _run(context: CommandContext) -> None:
    await context.conversations.clear(context.message.key)
    await context.replier.tell("A new session begins. I no longer see what was said before in this conversation.")


COMMAND = Command("new", "start this conversation afresh", "commanders", _run, aliases=("clear",))
