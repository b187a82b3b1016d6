"""`/stop`: end the running turn of this conversation and drop what waits behind it."""

from __future__ import annotations

from fermix.gateway.command import Command, CommandContext


async def _run(context: CommandContext) -> None:
    stopped, dropped = context.lanes.stop(context.message.key, before=context.slot)
    if not stopped and not dropped:
        await context.replier.tell("Nothing is running here.")
        return
    waiting = f" {dropped} waiting message{'s were' if dropped > 1 else ' was'} dropped." if dropped else ""
    await context.replier.tell(("Stopped." if stopped else "Nothing was running.") + waiting)


COMMAND = Command("stop", "stop what is running in this conversation", "operator", _run)
