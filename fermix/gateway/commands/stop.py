"""`/stop`: the owner ends everything that runs or waits, in every conversation; others end only their own.

What arrives after it is not stopped: the command's place in its lane is the border.
"""

from __future__ import annotations

from fermix.gateway.command import Command, CommandContext
from fermix.trust import Trust


async def _run(context: CommandContext) -> None:
    lanes, key = context.lanes, context.message.key
    everything = context.sender.trust is Trust.OPERATOR
    stopped, dropped = lanes.stop_all(before=context.slot) if everything else lanes.stop(key, before=context.slot)
    if not stopped and not dropped:
        await context.replier.tell("Nothing is running." if everything else "Nothing is running here.")
        return
    ended = f"{stopped} turns ended" if stopped > 1 else "Stopped" if stopped else "Nothing was running"
    waiting = f" {dropped} waiting message{'s were' if dropped > 1 else ' was'} dropped." if dropped else ""
    await context.replier.tell(f"{ended}.{waiting}")


COMMAND = Command("stop", "stop everything that is running", "commanders", _run, in_person=True)
