"""`/help`: the commands this sender may run."""

from __future__ import annotations

from fermix.gateway.command import Command, CommandContext


async def _run(context: CommandContext) -> None:
    allowed = (command for command in context.commands if command.allows(context.trust))
    lines = (f"`/{command.name}` {command.summary}" for command in allowed)
    await context.replier.tell("\n".join(f"- {line}" for line in lines))


COMMAND = Command("help", "list what you can type", "anyone", _run)
