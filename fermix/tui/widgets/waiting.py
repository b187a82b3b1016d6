"""Between transcript and prompt: what the running turn is doing and what waits behind it."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from fermix.tui.session import Queued
from fermix.tui.visible import one_line
from fermix.tui.widgets.tool_card import FRAMES_A_SECOND, SPINNER

MAX_LINES = 3
LINE_CHARS = 200
PATIENCE_S = 2  # what takes longer shows its seconds


class Waiting(Static):
    """Hidden while nothing runs and nothing waits."""

    def __init__(self) -> None:
        super().__init__(id="waiting", markup=False)
        self._activity = ""
        self._queue: Sequence[Queued] = ()
        self._connected = False
        self._turn: str | None = None
        self._since = 0.0
        self._frame = 0
        self._timer: Timer | None = None

    def on_mount(self) -> None:
        self._timer = self.set_interval(1 / FRAMES_A_SECOND, self._spin, pause=True)

    def show(self, activity: str, queue: Sequence[Queued], *, connected: bool, turn: str | None) -> None:
        if (turn, activity) != (self._turn, self._activity):
            self._turn, self._since = turn, monotonic()
        if (activity, tuple(queue), connected) == (self._activity, tuple(self._queue), self._connected):
            return
        self._activity, self._queue, self._connected = activity, queue, connected
        self.display = bool(activity or queue)
        if self._timer is not None:
            (self._timer.resume if activity else self._timer.pause)()
        self.update(self._content())

    def _spin(self) -> None:
        self._frame += 1
        self.update(self._content(), layout=False)

    def _content(self) -> Content:
        lines: list[Content] = []
        if self._activity:
            spinner = SPINNER[self._frame % len(SPINNER)]
            doing = one_line(self._activity, limit=LINE_CHARS)
            seconds = int(monotonic() - self._since)
            lasting = f" {seconds} s" if seconds >= PATIENCE_S else ""
            lines.append(Content.assemble((f"{spinner} ", "$accent"), doing, (f"{lasting}  Esc stops", "$text-muted")))
        lines += [self._queued(item) for item in self._queue[:MAX_LINES]]
        if len(self._queue) > MAX_LINES:
            lines.append(Content.styled(f"  and {len(self._queue) - MAX_LINES} more", "$text-muted"))
        return Content("\n").join(lines)

    def _queued(self, item: Queued) -> Content:
        why = "next" if not item.held else "sending" if self._connected else "held until the daemon answers"
        return Content.assemble(("  ◦ ", "$accent"), one_line(item.text, limit=LINE_CHARS), (f"  {why}", "$text-muted"))
