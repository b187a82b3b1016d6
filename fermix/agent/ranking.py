"""Rank tools by the words of a query: BM25 over names, descriptions and the names of parameters.

Called by `tool_search` for each query. What it ranks is what the caller sees, at most some hundreds, so nothing is
kept between two queries and nothing can be out of date.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from fermix.agent.capability import Capability

K1 = 1.5
B = 0.75
READ_CHARS = 2_000  # of a description; what comes after is a manual, and its length is a server's choice

_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]+|[a-z]+|[0-9]+")


def ranked(query: str, tools: Sequence[Capability]) -> tuple[Capability, ...]:
    """Return the tools that match, the best first; those whose name holds the query when no word of it is known."""
    documents = [Counter(_words_of(tool)) for tool in tools]
    scores = _scores(set(_words(query)), documents)
    order = sorted(range(len(tools)), key=lambda place: (-scores[place], tools[place].name))
    if found := tuple(tools[place] for place in order if scores[place] > 0):
        return found
    literal = query.strip().lower()
    return tuple(tool for tool in tools if literal and literal in tool.name.lower())


def _scores(query: set[str], documents: Sequence[Counter[str]]) -> list[float]:
    lengths = [document.total() for document in documents]
    average = sum(lengths) / len(lengths) if lengths else 0.0
    holding = {word: sum(word in document for document in documents) for word in query}
    weight = {word: math.log(1 + (len(documents) - count + 0.5) / (count + 0.5)) for word, count in holding.items()}
    return [
        sum(weight[word] * _saturated(document[word], length, average) for word in query if document[word])
        for document, length in zip(documents, lengths, strict=True)
    ]


def _saturated(count: int, length: int, average: float) -> float:
    return count * (K1 + 1) / (count + K1 * (1 - B + B * length / average))


def _words_of(tool: Capability) -> list[str]:
    properties = tool.parameters.get("properties")
    parameters = properties if isinstance(properties, dict) else {}
    return [word for text in (tool.name, tool.description[:READ_CHARS], *parameters) for word in _words(text)]


def _words(text: str) -> list[str]:
    """Split a text; listOpenIssues is found as a whole and by each of its three words."""
    found: list[str] = []
    for word in _WORD.findall(text):
        parts = _PART.findall(word)
        found += [part.lower() for part in ([word, *parts] if len(parts) > 1 else [word])]
    return found
