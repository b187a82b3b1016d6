"""A reply as Markdown, growing while it streams. Imported when the first reply is shown: it loads the parser.

Foreign text is never markup: HTML is shown as it was written, a link is copied and not opened.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from fermix.tui.blocks import ReplyBlock
from fermix.tui.host import host_of
from fermix.tui.parser import make_parser
from fermix.tui.visible import exact, prose

HIGHLIGHTED_CHARS = 3_000  # about 10 ms; a longer listing stays plain, so that typing never waits for it
MAX_BRACKETS = 400  # link parsing grows with their square: more are shown as plain text (TUI-01)


class Listing(MarkdownFence):
    """Code. Without a language it stays plain, since guessing one loads every lexer there is."""

    @classmethod
    def highlight(cls, code: str, language: str, ansi: bool = False, dark: bool = False) -> Content:
        if not language or len(code) > HIGHLIGHTED_CHARS:
            return Content("\n".join(code.splitlines()))
        return super().highlight(code, language, ansi, dark)


class ReplyText(Markdown):
    """Markdown that cannot act."""

    def get_block_class(self, block_name: str) -> type[MarkdownBlock]:
        return Listing if block_name in ("fence", "code_block") else super().get_block_class(block_name)

    def __init__(self, text: str) -> None:
        super().__init__(text, parser_factory=make_parser, open_links=False)

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        event.stop()
        host_of(self).copy_to_clipboard(event.href)
        self.notify(exact(event.href), title="Link copied", markup=False)


class Reply(Vertical):
    """One `ReplyBlock`, signed once it is known who spoke."""

    def __init__(self, block: ReplyBlock) -> None:
        super().__init__(classes="-fermix" if block.model is None else None)
        self.block = block
        self._shown = prose(block.text)
        self._plain = _is_costly(self._shown)

    def compose(self) -> ComposeResult:
        yield Static(Content(self._shown), markup=False) if self._plain else ReplyText(self._shown)
        signature = Static(_signature(self.block), classes="signature", markup=False)
        signature.display = self.block.signed
        yield signature

    async def show(self, block: ReplyBlock) -> None:
        self.block = block
        self.set_class(block.model is None, "-fermix")
        signature = self.query_one(".signature", Static)
        signature.display = block.signed
        signature.update(_signature(block))
        text = prose(block.text)
        if text != self._shown:
            await self._show_text(text)
            self._shown = text

    async def _show_text(self, text: str) -> None:
        if self._plain:
            self.query(Static).first(Static).update(Content(text))
        elif _is_costly(text):
            self._plain = True
            await self.query_one(ReplyText).remove()
            await self.mount(Static(Content(text), markup=False), before=0)
        elif text.startswith(self._shown):
            await self.query_one(ReplyText).append(text[len(self._shown) :])
        else:
            await self.query_one(ReplyText).update(text)


def _is_costly(text: str) -> bool:
    return text.count("[") > MAX_BRACKETS


def _signature(block: ReplyBlock) -> Content:
    return Content("Fermix" if block.model is None else prose(block.model))
