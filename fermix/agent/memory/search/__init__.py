"""Find what was said: an index of the stored messages that follows them by itself, and the ranking of what it finds."""

from fermix.agent.memory.search.search import UNFINISHED, Found, Hit, Search

__all__ = ["UNFINISHED", "Found", "Hit", "Search"]
