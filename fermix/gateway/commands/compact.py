"""`/compact`: sum up what was said before, so that a long conversation goes on cheaply."""

from __future__ import annotations

from fermix.agent.compaction.compactor import Compacted
from fermix.errors import FermixError
from fermix.gateway.command import Command, CommandContext


async def _run(context: CommandContext) -> None:
    try:
        done = await context.compact(context.message.key)
    except FermixError as error:
        await context.replier.tell(error.user_text or "That did not work, and nothing was changed. Try it again later.")
    else:
        await context.replier.tell(_sentence(done))


def _sentence(done: Compacted) -> str:
    told = f"The last request before that had {done.peak.tokens:,} tokens by the provider's count. "
    return (
        f"I summed up {done.covered} older messages. What I keep before me takes about {done.after_tokens:,} tokens "
        f"instead of {done.before_tokens:,}, by estimate. {told if done.peak.measured else ''}"
        "The messages themselves stay on disk."
    )


COMMAND = Command("compact", "sum up what was said before", "commanders", _run)
