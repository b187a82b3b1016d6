"""How many tokens a request is, by estimate: four bytes a token, and a flat price for a picture.

What fits into a window and what a call may cost are both judged by it, before any provider has counted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from fermix.agent.model import AssistantMessage, ChatMessage, Image, ToolSchema

BYTES_PER_TOKEN = 4
MESSAGE_TOKENS = 8  # role and framing of one message on any wire
IMAGE_TOKENS = 1_600  # the largest price of one picture among the wires we speak


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
