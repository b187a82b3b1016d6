"""What widgets tell the screen around them. Each is named for what happened."""

from __future__ import annotations

from textual.message import Message


class Submitted(Message):
    """The owner pressed Enter on a text that is not blank."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
