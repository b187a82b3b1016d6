"""`/stop`: end what runs and waits, here or everywhere; `stop_reach` decides how far.

What arrives after it is not stopped: the command's place in its lane is the border.
"""

from __future__ import annotations

from fermix.gateway.command import Command, CommandContext, stop_reach

USAGE = "Write `/stop` to end what runs here, or `/stop all` to end what runs in every conversation."


async def _run(context: CommandContext) -> None:
    lanes, key = context.lanes, context.message.key
    reach = stop_reach(context.rest, context.sender, context.message)
    if reach is None:
        await context.replier.tell(USAGE)
        return
    everything = reach == "everything"
    stopped, dropped = lanes.stop_all(before=context.slot) if everything else lanes.stop(key, before=context.slot)
    if not stopped and not dropped:
        await context.replier.tell("Nothing is running." if everything else "Nothing is running here.")
        return
    ended = f"{stopped} turns ended" if stopped > 1 else "Stopped" if stopped else "Nothing was running"
    waiting = f" {dropped} waiting message{'s were' if dropped > 1 else ' was'} dropped." if dropped else ""
    await context.replier.tell(f"{ended}.{waiting}")


COMMAND = Command(
    "stop", "end what is running; `/stop all` ends it in every conversation", "commanders", _run, in_person=True
)
