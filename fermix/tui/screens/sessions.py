"""The conversations of this home: choose one to go on with, or begin a new one."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from fermix.tui import wire
from fermix.tui.desk import Desk, new_session
from fermix.tui.visible import one_line
from fermix.tui.wire import Fields

NEW = "+new"  # a session's name has no "+"
TITLE_CHARS = 80


class SessionsScreen(ModalScreen[str | None]):
    """Closes with the session to show, None to stay where we were."""

    CSS_PATH = "sessions.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,ctrl+r", "leave", "Back", priority=True)]

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk

    def compose(self) -> ComposeResult:
        with Vertical(id="sessions") as box:
            box.border_title = "Conversations"
            box.border_subtitle = "Enter open · Esc back"
            yield OptionList(Option("+ New conversation", NEW), markup=False)
            yield Static("Loading…", id="hint", markup=False)

    async def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self.run_worker(self._load(), exclusive=True)

    async def _load(self) -> None:
        rows = await self._desk.list_conversations()
        options = self.query_one(OptionList)
        options.add_options([_option(row, self._desk.conversation.session) for row in rows])
        options.highlighted = 1 if rows else 0
        hint = "" if rows else "No conversation is stored yet." if self._desk.link.connected else "The daemon is away."
        self.query_one("#hint", Static).update(hint)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        chosen = event.option.id
        self.dismiss(new_session() if chosen == NEW else chosen)

    def action_leave(self) -> None:
        self.dismiss(None)


def _option(row: Fields, current: str) -> Option:
    session = wire.text(row, "session")
    count = int(wire.number(row, "messages"))
    mark = "● " if session == current else "  "
    title = one_line(wire.text(row, "title"), limit=TITLE_CHARS) or "(no text)"
    when = wire.text(row, "last_at")[:16].replace("T", " ")
    about = f"\n  {when} UTC · {count} message{'s' if count != 1 else ''} · {session}"
    return Option(Content.assemble((mark, "$primary"), title, (about, "$text-muted")), session)
