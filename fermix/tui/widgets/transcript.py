"""The conversation: a bounded window of live widgets over any number of blocks (TUI-07).

Given the whole list of blocks, it brings its widgets in line with it: a block that is the same object is left
alone. It follows the end until the reader scrolls up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from fermix.tui.blocks import Block, NoteBlock, ReplyBlock, ToolBlock, UserBlock
from fermix.tui.host import host_of
from fermix.tui.visible import prose
from fermix.tui.widgets.tool_card import ToolCard

if TYPE_CHECKING:
    from fermix.tui.widgets.reply import Reply

LIVE_BLOCKS = 30  # widgets that are laid out on a resize
SLACK_BLOCKS = 15  # how far the window grows before it is cut, so that cutting is rare
STEP_BLOCKS = 20


class Said(Static):
    """What the owner wrote, or a note: plain text."""

    def __init__(self, block: UserBlock | NoteBlock) -> None:
        style = block.kind if isinstance(block, NoteBlock) else "continued" if block.continued else "first"
        super().__init__(Content(prose(block.text)), markup=False, classes=f"-{style}")


class UserText(Said):
    """A message of the owner."""


class Note(Said):
    """A remark or an error."""


class More(Static):
    """The line that stands for blocks outside the window."""


class Transcript(VerticalScroll, can_focus=False):
    """Shows blocks; `show` is called with all of them after every change, at most some 20 times a second."""

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self._blocks: Sequence[Block] = ()
        self._first = 0
        self._following = True
        self._widgets: dict[str, Widget] = {}
        self._drawn: dict[str, Block] = {}

    def compose(self) -> ComposeResult:
        yield More("", id="earlier", markup=False)
        yield More("", id="later", markup=False)

    def on_mount(self) -> None:
        self.anchor()

    async def show(self, blocks: Sequence[Block]) -> None:
        """Bring the widgets in line with `blocks`."""
        self._blocks = blocks
        self._move_window()
        window = blocks[self._first : self._last]
        with host_of(self).batch_update():
            await self._drop({block.key for block in window})
            await self._place(window)
            self._tell_more()

    async def earlier(self) -> None:
        """Slide the window towards the start, keeping what is read where it is."""
        if self._first == 0:
            return
        self._following = False
        self._first = max(0, self._first - STEP_BLOCKS)
        anchor = next(iter(self._widgets.values()), None)
        await self.show(self._blocks)
        if anchor is not None and anchor.is_attached:
            self.call_after_refresh(self.scroll_to_widget, anchor, animate=False, top=True)

    async def latest(self, blocks: Sequence[Block]) -> None:
        """Go to the end and follow it again."""
        self.follow()
        await self.show(blocks)

    def follow(self) -> None:
        """Stay at the end from the next change on."""
        self._following = True
        self.anchor()

    async def page(self, step: int) -> None:
        """Scroll one page up (-1) or down (1), loading what is beyond."""
        if step < 0 and self.scroll_y <= 0:
            await self.earlier()
        elif step > 0 and self.scroll_y >= self.max_scroll_y and self._last < len(self._blocks):
            await self._later()
        elif step < 0:
            self.scroll_page_up(animate=False)
        else:
            self.scroll_page_down(animate=False)

    def unfold_last_tool(self) -> None:
        cards = [widget for widget in self._widgets.values() if isinstance(widget, ToolCard)]
        if cards:
            cards[-1].action_unfold()

    async def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        if self.scroll_y <= 0:
            await self.earlier()

    async def on_click(self, event: events.Click) -> None:
        if event.widget is not None and event.widget.id == "earlier":
            await self.earlier()
        elif event.widget is not None and event.widget.id == "later":
            await self.latest(self._blocks)

    async def _later(self) -> None:
        self._first += STEP_BLOCKS
        if self._last >= len(self._blocks):
            await self.latest(self._blocks)
        else:
            await self.show(self._blocks)

    @property
    def _last(self) -> int:
        """One past the last live block."""
        if self._following:
            return len(self._blocks)
        return min(len(self._blocks), self._first + LIVE_BLOCKS + SLACK_BLOCKS)

    def _move_window(self) -> None:
        total = len(self._blocks)
        if self._following and total - self._first > LIVE_BLOCKS + SLACK_BLOCKS:
            self._first = total - LIVE_BLOCKS
        self._first = min(self._first, max(0, total - 1))

    async def _drop(self, wanted: set[str]) -> None:
        gone = [key for key in self._widgets if key not in wanted]
        if gone:
            await self.remove_children([self._widgets.pop(key) for key in gone])
        for key in gone:
            del self._drawn[key]

    async def _place(self, window: Sequence[Block]) -> None:
        """Mount what is missing, in runs before the next widget that stands, and update what changed."""
        run: list[Widget] = []
        ordered: dict[str, Widget] = {}
        for block in window:
            widget = self._widgets.get(block.key)
            if widget is None:
                widget = _widget_for(block)
                run.append(widget)
            else:
                await self._mount_before(run, widget)
                run = []
                await self._update(widget, block)
            ordered[block.key] = widget
            self._drawn[block.key] = block
        await self._mount_before(run, self.query_one("#later"))
        self._widgets = ordered

    async def _mount_before(self, run: list[Widget], widget: Widget) -> None:
        if run:
            await self.mount_all(run, before=widget)

    async def _update(self, widget: Widget, block: Block) -> None:
        if self._drawn.get(block.key) is block:
            return
        if isinstance(block, ToolBlock) and isinstance(widget, ToolCard):
            widget.show(block)
        elif isinstance(block, ReplyBlock):
            assert isinstance(widget, load_reply())
            await widget.show(block)

    def _tell_more(self) -> None:
        earlier, later = self._first, len(self._blocks) - self._last
        self._tell("#earlier", f"↑ {earlier:,} earlier · PgUp", earlier)
        self._tell("#later", f"↓ {later:,} later · Ctrl+End", later)

    def _tell(self, selector: str, text: str, count: int) -> None:
        line = self.query_one(selector, More)
        line.display = count > 0
        line.update(text)


def load_reply() -> type[Reply]:
    """Import the Markdown parser, which the first frame does not wait for."""
    from fermix.tui.widgets.reply import Reply

    return Reply


def _widget_for(block: Block) -> Widget:
    match block:
        case UserBlock():
            return UserText(block)
        case NoteBlock():
            return Note(block)
        case ToolBlock():
            return ToolCard(block)
        case ReplyBlock():
            return load_reply()(block)
