"""What fits into a model's window, by the estimates of `tokens.py`.

Called by the runner before a turn is stored, and by the transcript while it runs. History is dropped from the oldest
end, and only in whole units, a user's message with all that followed it, so that no call loses its result and the
rest still begins with a user.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fermix.agent.model import ChatMessage, UserMessage
from fermix.agent.providers.provider import ModelFacts, Route
from fermix.agent.risk import is_summary
from fermix.agent.tokens import message_tokens
from fermix.errors import LimitReached


@dataclass(frozen=True, slots=True)
class Fitted:
    """The messages of a request, and how many older ones were left out."""

    messages: tuple[ChatMessage, ...]
    dropped: int


def fit(
    earlier: Sequence[ChatMessage], question: UserMessage, *, fixed_tokens: int, facts: ModelFacts, route: Route
) -> Fitted:
    """Keep the newest units of history that fit beside the question; `fixed_tokens` is the prompt with its tools. A
    summary of what came before stands first and goes last.

    Raises: LimitReached "prompt" when the question alone does not fit.
    """
    room = request_tokens(facts) - fixed_tokens
    asked = message_tokens(question)
    if asked > room:
        raise LimitReached(
            f"prompt of about {asked} tokens, room for {room}",
            limit="prompt",
            user_text=f"Your message is too long for {route}: about {asked:,} tokens, and {max(room, 0):,} fit. "
            "Shorten it, or save it as a file and ask about parts of it.",
        )
    head = _summary_of(earlier, room - asked)
    left = room - asked - sum(map(message_tokens, head))
    rest, kept_from = earlier[len(head) :], len(earlier) - len(head)
    for start, end in reversed(_units(rest)):
        left -= sum(map(message_tokens, rest[start:end]))
        if left < 0:
            break
        kept_from = start
    return Fitted((*head, *rest[kept_from:], question), kept_from)


def request_tokens(facts: ModelFacts) -> int:
    """Return how large a request may be: the window without the room for the answer."""
    return facts.context_tokens - min(facts.max_output_tokens, facts.context_tokens // 4)


def _summary_of(earlier: Sequence[ChatMessage], room: int) -> Sequence[ChatMessage]:
    """Return the unit of a summary at the beginning, if there is one and it fits."""
    if not earlier or not is_summary(earlier[0]):
        return ()
    units = _units(earlier)
    head = earlier[: units[0][1]]
    return head if sum(map(message_tokens, head)) <= room else ()


def _units(messages: Sequence[ChatMessage]) -> list[tuple[int, int]]:
    """Bounds of each unit; what stands before the first user message is no unit and is never kept alone."""
    starts = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)]
    return list(pairwise([*starts, len(messages)]))
