"""`/confirm` and `/deny`: the owner's answer to a question, by the code in it. A button sends the same."""

from __future__ import annotations

import logging

from fermix.agent.approvals import Pending, Rejected, Seam
from fermix.errors import FermixError
from fermix.gateway.command import Command, CommandContext

log = logging.getLogger(__name__)

REJECTED: dict[Rejected, str] = {
    "unknown": "I know no such question. It may be answered already; ask again if you still need it.",
    "late": "That was more than a minute ago, so nothing was done. Ask again if you still need it.",
    "elsewhere": "That question was asked in another conversation. Answer it there.",
}


async def _confirm(context: CommandContext) -> None:
    pending = await _take(context)
    if pending is None:
        return
    try:
        done = await pending.request.carry_out(pending.request.seal)
    except FermixError as error:
        await context.replier.tell(error.user_text or "That could not be done; the log has the details.")
        return
    await context.replier.tell(f"{done}\n\n{await _resumed(pending.seam)}".rstrip())


async def _resumed(seam: Seam) -> str:
    """Let the request run again, where it can; returns what to tell of that. It waits behind this command's answer."""
    if seam.resume is None:
        return seam.after_yes
    try:
        await seam.resume()
    except FermixError as error:
        log.error("a request does not run again after a yes: %s", error)  # noqa: TRY400 - no bug of ours
        return "Your request could not be started again; please send it once more."
    return seam.after_yes


async def _deny(context: CommandContext) -> None:
    pending = await _take(context)
    if pending is not None:
        pending.request.refused()
        await context.replier.tell("Refused. Nothing was changed.")


async def _take(context: CommandContext) -> Pending | None:
    """Take what the code stands for, or tell why not."""
    code = context.rest.strip()
    taken = context.approvals.take(code, context.message, local=context.message.origin is not None)
    if isinstance(taken, Pending):
        return taken
    await context.replier.tell(REJECTED[taken] if code else "Put the code of the question behind the command.")
    return None


CONFIRM = Command("confirm", "approve what I asked for, with its code", "operator", _confirm, in_person=True)
DENY = Command("deny", "refuse what I asked for, with its code", "operator", _deny, in_person=True)
