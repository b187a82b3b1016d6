"""What fits into a model's window, by estimate: four bytes a token, and a flat price for a picture.

Called by the runner before a turn is stored, and by the transcript while it runs. History is dropped from the oldest
end, and only in whole units, a user's message with all that followed it, so that no call loses its result and the
rest still begins with a user.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fermix.agent.model import AssistantMessage, ChatMessage, Image, ToolSchema, UserMessage
from fermix.agent.providers.provider import ModelFacts, Route
from fermix.errors import LimitReached

BYTES_PER_TOKEN = 4
MESSAGE_TOKENS = 8  # role and framing of one message on any wire
IMAGE_TOKENS = 1_600  # the largest price of one picture among the wires we speak


@dataclass(frozen=True, slots=True)
class Fitted:
    """The messages of a request, and how many older ones were left out."""

    messages: tuple[ChatMessage, ...]
    dropped: int


def fit(
    earlier: Sequence[ChatMessage], question: UserMessage, *, fixed_tokens: int, facts: ModelFacts, route: Route
) -> Fitted:
    """Keep the newest units of history that fit beside the question; `fixed_tokens` is the prompt with its tools.

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
    left, kept_from = room - asked, len(earlier)
    for start, end in reversed(_units(earlier)):
        left -= sum(map(message_tokens, earlier[start:end]))
        if left < 0:
            break
        kept_from = start
    return Fitted((*earlier[kept_from:], question), kept_from)


def request_tokens(facts: ModelFacts) -> int:
    """Return how large a request may be: the window without the room for the answer."""
    return facts.context_tokens - min(facts.max_output_tokens, facts.context_tokens // 4)


def message_tokens(message: ChatMessage) -> int:
    """Estimate one message with its framing, calls and pictures."""
    size_bytes = text_bytes(message.text)
    images: tuple[Image, ...] = ()
    if isinstance(message, AssistantMessage):
        size_bytes += sum(text_bytes(json.dumps(dict(call.arguments))) for call in message.tool_calls)
        size_bytes += text_bytes(json.dumps(message.reasoning.items)) if message.reasoning else 0
    else:
        images = message.images
    return MESSAGE_TOKENS + size_bytes // BYTES_PER_TOKEN + IMAGE_TOKENS * len(images)


def prompt_tokens(system: Sequence[str], tools: Sequence[ToolSchema]) -> int:
    """Estimate what stands before the messages in every request."""
    schemas = [json.dumps([tool.name, tool.description, tool.parameters], ensure_ascii=False) for tool in tools]
    return sum(MESSAGE_TOKENS + text_bytes(text) // BYTES_PER_TOKEN for text in (*system, *schemas))


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _units(messages: Sequence[ChatMessage]) -> list[tuple[int, int]]:
    """Bounds of each unit; what stands before the first user message is no unit and is never kept alone."""
    starts = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)]
    return list(pairwise([*starts, len(messages)]))
