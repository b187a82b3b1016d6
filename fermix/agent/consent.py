"""The owner's yes to one call, asked for and waited for while its turn stands still. Called by `dispatch.py`.

What is shown is what runs: the seal is a hash over the tool, its arguments, the place and what lies there on disk, the
turn and its trust, made out again after the yes. Without a yes nothing runs, and a turn that got two noes asks no more.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from fermix.agent.approvals import MOST_TEXT_CHARS, Approvals
from fermix.agent.capability import Capability, ToolContext
from fermix.agent.model import JsonValue, ToolCall
from fermix.agent.risk import why_asked
from fermix.agent.turn import Turn
from fermix.errors import Refused
from fermix.visible import fenced, spelled

MOST_NOES = 2  # of one turn; QUE-03: whoever is refused must not go on asking for variants

NOBODY = "and nobody can be asked in this turn"
NO = "the owner refused it. Do not try it in another way; say what you could not do"
LATE = "the owner did not answer within a minute. End your turn and say what you wanted to do"
NO_AGAIN = "the owner has refused this very call in this turn already, so it is not asked for again"
NO_MORE = "the owner has refused twice in this turn, so nothing more is asked for. End your turn and say why"
TOO_LONG = "it is too long to be shown to the owner whole, and nothing is allowed in part. Make it shorter"
CHANGED = "what it acts on is not the same any more as when the owner was asked"


@dataclass(frozen=True, slots=True)
class _Question:
    """What is put to the owner, and the hash over exactly that."""

    text: str
    seal: str


class Consent:
    """One per daemon. What a turn was refused lives in the turn's own scope."""

    def __init__(self, approvals: Approvals | None) -> None:
        """`approvals` None: nobody can ever be asked."""
        self._approvals = approvals

    async def admit(self, call: ToolCall, tool: Capability, context: ToolContext, noes: set[str]) -> None:
        """Return when the call may run now. `noes` are the seals that were refused in this turn.

        Raises: Refused with the reason when it may not; what keeps the question from being put.
        """
        why = why_asked(tool, call.arguments, context)
        if why is None:
            return
        seam = context.turn.seam
        if self._approvals is None or seam is None or not context.turn.may_ask:
            raise _refused(why, NOBODY)
        question = await _question(call, tool, context, why)
        if question.seal in noes:
            raise _refused(why, NO_AGAIN)
        if len(noes) >= MOST_NOES:
            raise _refused(why, NO_MORE)
        if len(question.text) > MOST_TEXT_CHARS:
            raise _refused(why, TOO_LONG)
        answer = await self._approvals.wait_for(question.text, question.seal, seam, context.port.send)
        if answer != "yes":
            noes.add(question.seal)
            raise _refused(why, NO if answer == "no" else LATE)
        if (await _question(call, tool, context, why)).seal != question.seal:
            raise _refused(why, CHANGED)


async def _question(call: ToolCall, tool: Capability, context: ToolContext, why: str) -> _Question:
    """Make out what would be done now."""
    place = "" if tool.acts_in is None else await tool.acts_in(call.arguments, context)
    things = "" if tool.acts_on is None else await tool.acts_on(call.arguments, context)
    lines = [f"tool: {tool.name}", *([f"in: {_value(place)}"] if place else [])]
    lines += [f"{spelled(name)}: {_value(value)}" for name, value in sorted(call.arguments.items())]
    text = (
        f"May I do this? I must ask, because {why}.\n\n{fenced(chr(10).join(lines))}\n\n"
        "A yes is for this one call: it runs at once, and I go on with its result."
    )
    return _Question(text, _seal(call, tool, context.turn, place, things))


def _seal(call: ToolCall, tool: Capability, turn: Turn, place: str, things: str) -> str:
    whole: list[JsonValue] = [tool.name, dict(call.arguments), place, things, turn.id, turn.trust.value]
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _value(value: JsonValue) -> str:
    """Show a value on one line, a text between quotes, so that blanks at its ends are seen."""
    if isinstance(value, str):
        return f"“{spelled(value)}”"
    return spelled(json.dumps(value, ensure_ascii=False, sort_keys=True))


def _refused(why: str, reason: str) -> Refused:
    text = f"this needs the owner's yes, because {why}; {reason}"
    return Refused(text, user_text=text)
