"""The system prompt: the owner's files and the parts made from them."""

from fermix.agent.prompt.bootstrap import PromptFiles, load, seed
from fermix.agent.prompt.composer import compose, compose_compact, date_note

__all__ = ["PromptFiles", "compose", "compose_compact", "date_note", "load", "seed"]
