"""Where the owner types: several lines, a history, whole graphemes. Posts `Submitted`; knows no daemon."""

from __future__ import annotations

from rich.cells import split_graphemes
from rich.text import Text
from textual import events
from textual.widgets import TextArea

from fermix.tui.messages import Submitted

MAX_HISTORY = 500
NEWLINE_KEYS = ("ctrl+j", "shift+enter", "alt+enter")
Location = tuple[int, int]

# One symbol for one character, so that columns in the document and on the screen stay the same.
_CONTROLS = (
    {code: chr(0x2400 + code) for code in range(0x20) if code != 0x09}
    | {0x7F: "\u2421"}
    | dict.fromkeys((*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), "\ufffd")
    | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")
)


class Prompt(TextArea):
    """Enter sends, Ctrl+J or Shift+Enter breaks the line, Up and Down at the edges walk through what was sent."""

    def __init__(self) -> None:
        super().__init__(
            id="prompt",
            placeholder="Ask anything, or type /help",
            highlight_cursor_line=False,
            compact=True,
        )
        self._sent: list[str] = []
        self._at: int | None = None
        self._unfinished = ""

    def remember(self, texts: list[str]) -> None:
        """Take the history of another conversation; the oldest first."""
        self._sent = texts[-MAX_HISTORY:]
        self._at = None

    async def _on_key(self, event: events.Key) -> None:
        """Act in the order of the keys: a binding with priority would overtake letters that still wait here."""
        if event.key == "enter":
            self._submit()
        elif event.key in NEWLINE_KEYS:
            self.replace("\n", *self.selection, maintain_selection_offset=False)
        else:
            return
        event.stop()
        event.prevent_default()

    def _submit(self) -> None:
        text = self.text
        if not text.strip():
            return
        if not self._sent or self._sent[-1] != text:
            self._sent = [*self._sent[1 - MAX_HISTORY :], text]
        self._at = None
        self.clear()
        self.post_message(Submitted(text))

    def action_cursor_up(self, select: bool = False) -> None:
        if not select and self.navigator.is_first_wrapped_line(self.cursor_location):
            self._recall(-1)
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if not select and self.navigator.is_last_wrapped_line(self.cursor_location):
            self._recall(1)
        else:
            super().action_cursor_down(select)

    def get_cursor_left_location(self) -> Location:
        """One grapheme back, so that an emoji of several characters is never torn."""
        row, column = self.cursor_location
        starts = [start for start, _, _ in _graphemes(self.document.get_line(row)) if start < column]
        return (row, starts[-1]) if starts else super().get_cursor_left_location()

    def get_cursor_right_location(self) -> Location:
        row, column = self.cursor_location
        ends = (end for _, end, _ in _graphemes(self.document.get_line(row)) if end > column)
        end = next(ends, None)
        return super().get_cursor_right_location() if end is None else (row, end)

    def get_line(self, line_index: int) -> Text:
        """The line as it is drawn: a pasted control character is shown, not sent to the terminal."""
        return Text(self.document.get_line(line_index).translate(_CONTROLS), end="", no_wrap=True)

    def _recall(self, step: int) -> None:
        at = len(self._sent) if self._at is None else self._at
        if self._at is None:
            self._unfinished = self.text
        target = at + step
        if not 0 <= target <= len(self._sent):
            return
        self._at = None if target == len(self._sent) else target
        self.text = self._unfinished if self._at is None else self._sent[target]
        self.move_cursor(self.document.end)


def _graphemes(line: str) -> list[tuple[int, int, int]]:
    """Start, end and cells of each grapheme; flags, which are two letters, are one."""
    spans, _ = split_graphemes(line)
    joined: list[tuple[int, int, int]] = []
    for start, end, cells in spans:
        if joined and _is_flag(line[joined[-1][0] : end]):
            first, _, width = joined[-1]
            joined[-1] = (first, end, width + cells)
        else:
            joined.append((start, end, cells))
    return joined


def _is_flag(text: str) -> bool:
    return len(text) == 2 and all("\U0001f1e6" <= char <= "\U0001f1ff" for char in text)
