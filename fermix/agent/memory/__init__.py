"""What the agent remembers. Conversation history so far; the runner, the commands and the socket come in here."""

from fermix.agent.memory.conversations import Conversations, ConversationSummary
from fermix.agent.memory.history import Entry
from fermix.agent.memory.rows import Note, Stored

__all__ = ["ConversationSummary", "Conversations", "Entry", "Note", "Stored"]
