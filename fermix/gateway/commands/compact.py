"""`/compact`: sum up what was said before, so that a long conversation goes on cheaply."""

from __future__ import annotations

from fermix.agent.compaction.compactor import Compacted
from fermix.agent.sentences import sentence_for
from fermix.errors import FermixError
from fermix.gateway.command import Command, CommandContext
from fermix.trust import Trust


async def _run(context: CommandContext) -> None:
    try:
        done = await context.compact(context.message.key)
    except FermixError as error:
        await context.replier.tell(_refusal(error, context.sender.trust))
    else:
        await context.replier.tell(_sentence(done))


def _refusal(error: FermixError, trust: Trust) -> str:
    """Say why not; a guest who may run commands is told nothing of the owner's setup and spending."""
    told = error.user_text if trust is Trust.OPERATOR else sentence_for(error, trust)
    return told or "That did not work, and nothing was changed. Try it again later."


def _sentence(done: Compacted) -> str:
    told = f"The last request before that had {done.peak.tokens:,} tokens by the provider's count. "
    return (
        f"I summed up {done.covered} older messages. What I keep before me takes about {done.after_tokens:,} tokens "
        f"instead of {done.before_tokens:,}, by estimate. {told if done.peak.measured else ''}"
        "The messages themselves stay on disk."
    )


COMMAND = Command("compact", "sum up what was said before", "commanders", _run)
