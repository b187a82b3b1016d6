"""What widgets tell the screen around them. Each is named for what happened."""

from __future__ import annotations

from textual.message import Message


class Submitted(Message):
    """The owner pressed Enter on a text that is not blank."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class EarlierWanted(Message):
    """The reader reached the top of the live window."""


class LaterWanted(Message):
    """The reader reached the bottom of a window that is not at the end."""
