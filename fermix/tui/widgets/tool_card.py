"""One tool call: its name and arguments, a spinner while it runs, its result on demand.

Everything in it is foreign: shown as plain text, control characters visible (INJ-07).
"""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from fermix.tui.blocks import ToolBlock
from fermix.tui.visible import cut, exact, prose

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_A_SECOND = 8
LINE_CHARS = 400
RESULT_CHARS = 4_000  # the daemon sends a preview of half of that; a stored result may be longer
MARKS = {"running": "●", "ok": "✓", "failed": "✗", "stopped": "■"}
COLOURS = {"running": "$warning", "ok": "$success", "failed": "$error", "stopped": "$text-muted"}


class ToolCard(Static, can_focus=True):
    """A card for one `ToolBlock`; Enter or a click opens and closes its result."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "unfold", "Show the result")]

    def __init__(self, block: ToolBlock) -> None:
        super().__init__(markup=False)
        self.block = block
        self._open = False
        self._frame = 0
        self._timer: Timer | None = None

    def on_mount(self) -> None:
        self._timer = self.set_interval(1 / FRAMES_A_SECOND, self._spin, pause=True)
        self.show(self.block)

    def show(self, block: ToolBlock) -> None:
        self.block = block
        self.set_class(block.state == "failed", "-failed")
        if self._timer is not None:
            (self._timer.resume if block.state == "running" else self._timer.pause)()
        self._draw()

    def action_unfold(self) -> None:
        self._open = not self._open
        self._draw()

    def on_click(self) -> None:
        self.action_unfold()

    def _spin(self) -> None:
        self._frame += 1
        self.update(self._content(), layout=False)

    def _draw(self) -> None:
        self.update(self._content())

    def _content(self) -> Content:
        block = self.block
        mark = SPINNER[self._frame % len(SPINNER)] if block.state == "running" else MARKS[block.state]
        head = Content.assemble(
            (f"{mark} ", COLOURS[block.state]),
            (exact(block.name) or "tool", "bold"),
            (f"  {self._arguments()}", "$text-muted"),
            (self._ending(), "$text-muted"),
        )
        return Content("\n").join([head, Content(cut(prose(block.result), limit=RESULT_CHARS))]) if self._open else head

    def _arguments(self) -> str:
        return cut(exact(self.block.arguments), limit=RESULT_CHARS if self._open else LINE_CHARS)

    def _ending(self) -> str:
        block = self.block
        took = "" if block.duration_s is None else f"  {block.duration_s:.1f} s"
        lines = len(block.result.splitlines())
        more = "" if self._open or not lines else f"  ▸ {lines} line{'s' if lines > 1 else ''}"
        return ("  stopped" if block.state == "stopped" else took) + more
