"""Older parts of a conversation summed up, so that it never outgrows a model. The agent and the runner come in here."""
