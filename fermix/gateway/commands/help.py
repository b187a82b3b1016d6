"""`/help`: the commands that this sender may run here, and that this version can."""

from __future__ import annotations

from fermix.gateway.command import Command, CommandContext, why_refused


async def _run(context: CommandContext) -> None:
    runnable = (command for command in context.commands if command.run is not None)
    allowed = (command for command in runnable if why_refused(command, context.sender, context.message) is None)
    await context.replier.tell("\n".join(f"- `/{command.name}` {command.summary}" for command in allowed))


COMMAND = Command("help", "list what you can type", "anyone", _run)
