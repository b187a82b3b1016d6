"""What the agent remembers. Conversation history so far; the runner, the commands and the socket come in here."""

from fermix.agent.memory.conversations import Conversations, ConversationSummary
from fermix.agent.memory.history import Entry
from fermix.agent.memory.rows import Checkpoint, Note, Row, Stored

__all__ = ["Checkpoint", "ConversationSummary", "Conversations", "Entry", "Note", "Row", "Stored"]
