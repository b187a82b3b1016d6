"""`/usage`: what the models cost, today and this month."""

from __future__ import annotations

from fermix.agent.budget import report
from fermix.errors import FermixError
from fermix.gateway.command import Command, CommandContext
from fermix.protocol.usage_lines import lines
from fermix.visible import fenced

MOST_LINES = 40


async def _run(context: CommandContext) -> None:
    try:
        told = [*lines(await report(context.budget, days=1))]
    except FermixError as error:
        await context.replier.tell(error.user_text or "The books cannot be read; the log says why.")
        return
    more = ["…"] if len(told) > MOST_LINES else []
    await context.replier.tell(fenced("\n".join([*told[:MOST_LINES], *more])))


COMMAND = Command("usage", "tell what the models cost today and this month", "operator", _run)
