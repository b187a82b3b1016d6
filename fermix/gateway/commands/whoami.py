"""`/whoami`: the id under which the sender is known here."""

from __future__ import annotations

from fermix.gateway.command import Command, CommandContext


async def _run(context: CommandContext) -> None:
    message = context.message
    await context.replier.tell(f"You are `{message.sender.id}` on `{message.channel}` ({context.sender.trust}).")


COMMAND = Command("whoami", "tell your id on this channel", "anyone", _run)
