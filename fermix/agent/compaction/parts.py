"""What of a history is summed up, and how it is put before a model. Pure functions of the rows.

A history is cut between whole units, a user's message with all that followed it, so that no call loses its result. The
newest unit always stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from fermix.agent.memory import Checkpoint, Note, Row, Stored
from fermix.agent.memory.history import sendable
from fermix.agent.model import AssistantMessage, ToolMessage, UserMessage
from fermix.agent.results import bounded, is_framed
from fermix.agent.tokens import message_tokens

RESULT_CHARS = 2_000  # of a tool: what was found out matters, not every line
ARGUMENT_CHARS = 500

_TAG = re.compile(r"<(?=/?(?:conversation|earlier-summary)\b)", re.IGNORECASE)


def history_tokens(rows: Sequence[Row]) -> int:
    """Estimate what the rows take in a request."""
    return sum(map(message_tokens, sendable(rows)))


def older(rows: Sequence[Row], keep_tokens: int) -> Sequence[Row]:
    """Return the first rows, as many as must go so that the rest takes about so many tokens; at least the last unit is
    kept, and nothing goes when there is nothing but a summary before it.
    """
    starts = [place for place, row in enumerate(rows) if isinstance(row.item, UserMessage)]
    left, cut = keep_tokens, len(rows)
    for start, end in reversed(list(pairwise([*starts, len(rows)]))):
        left -= history_tokens(rows[start:end])
        if left < 0 and cut < len(rows):
            break
        cut = start
    old = rows[:cut] if starts else ()
    return () if all(isinstance(row.item, Checkpoint) for row in old) else old


def holds_words_of_others(rows: Sequence[Row]) -> bool:
    """Say whether a summary of the rows is made of words that the owner did not write or choose."""
    return any(row.guest or _is_outside(row.item) for row in rows)


def chunks(rows: Sequence[Row], limit_chars: int) -> Iterator[tuple[Sequence[Row], str]]:
    """Give the rows as text, in pieces of at most about so many characters, each with its rows."""
    taken: list[Row] = []
    texts: list[str] = []
    size = 0
    for row in rows:
        text = bounded(_told(row), limit_chars)
        if taken and size + len(text) > limit_chars:
            yield taken, "\n\n".join(texts)
            taken, texts, size = [], [], 0
        taken.append(row)
        texts.append(text)
        size += len(text)
    if taken:
        yield taken, "\n\n".join(texts)


def _told(row: Row) -> str:
    """Write a row as a line of a record."""
    return without_tags(f"{_speaker(row)}: {_said(row.item)}")


def without_tags(text: str) -> str:
    """Take the bracket from every tag of ours, so that a text cannot end the place where it stands."""
    return _TAG.sub("&lt;", text)


def _speaker(row: Row) -> str:
    match row.item:
        case UserMessage():
            return "GUEST" if row.guest else "USER"
        case AssistantMessage():
            return "ASSISTANT"
        case ToolMessage(name=name):
            return f"RESULT OF {name}"
        case Note():
            return "NOTE"
        case Checkpoint():
            return "SUMMARY OF WHAT CAME BEFORE"


def _said(item: Stored) -> str:
    match item:
        case ToolMessage(text=text):
            return bounded(text, RESULT_CHARS)
        case AssistantMessage(text, calls):
            made = [
                f"[calls {call.name} {bounded(json.dumps(dict(call.arguments)), ARGUMENT_CHARS)}]" for call in calls
            ]
            return "\n".join(filter(None, [text, *made]))
        case _:
            return item.text


def _is_outside(item: Stored) -> bool:
    return item.outside if isinstance(item, Checkpoint) else isinstance(item, ToolMessage) and is_framed(item.text)
