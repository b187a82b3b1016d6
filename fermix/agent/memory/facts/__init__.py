"""Remembered facts. The tools, the agent and the socket come in here."""

from fermix.agent.memory.facts.fact import (
    AT_THE_TERMINAL,
    CATEGORIES,
    Category,
    Fact,
    Origin,
    admitted,
    origin_of,
    session_id,
)
from fermix.agent.memory.facts.facts import Facts, Remembered
from fermix.agent.memory.facts.recall import Breadth, by_key, by_words, within
from fermix.agent.memory.facts.render import SHAPES
from fermix.agent.memory.facts.revisions import Revision
from fermix.agent.memory.facts.rows import Change

__all__ = [
    "AT_THE_TERMINAL",
    "CATEGORIES",
    "SHAPES",
    "Breadth",
    "Category",
    "Change",
    "Fact",
    "Facts",
    "Origin",
    "Remembered",
    "Revision",
    "admitted",
    "by_key",
    "by_words",
    "origin_of",
    "session_id",
    "within",
]
