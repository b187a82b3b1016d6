"""The Markdown of replies, parsed so that nothing a model says is lost from the screen.

Called by the reply widget. Markdown has texts that draw nothing: a list item, a heading or a fence that is empty, a
link without words, a definition of a link. Each of them may be a whole answer ("4.", "#"), so it is shown as it was
written. HTML is text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_block.table import escapedSplit
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

BLANK_LINE = "\u00a0"  # gives an empty list item the height that its number needs


def make_parser() -> MarkdownIt:
    parser = MarkdownIt("gfm-like", {"html": False}).disable("reference")
    parser.core.ruler.push("show_all", _show_all)
    return parser


def _show_all(state: StateCore) -> None:
    tokens = list(_without_lossy_tables(state.tokens, state.src.splitlines()))
    state.tokens = [shown for at, token in enumerate(tokens) for shown in _visible(token, tokens[at - 1 : at])]


def _visible(token: Token, before: Sequence[Token]) -> list[Token]:
    """The tokens that stand for this one; `before` holds the one in front of it."""
    opened = before[0] if before else token
    if token.type == "list_item_close" and opened.type == "list_item_open":
        return [*_paragraph(BLANK_LINE, opened), token]
    if token.type == "fence" and not token.content.strip():
        return _paragraph(f"{token.markup}{token.info}", token)
    if token.type == "inline":
        token.children = _words(token, opened.markup)
    return [token]


def _words(inline: Token, written_before: str) -> list[Token]:
    """The children of a line, an empty link by its address; the source when they draw nothing."""
    children: list[Token] = []
    for child in inline.children or []:
        if child.type == "link_close" and children[-1].type == "link_open":
            children.append(_text(str(children[-1].attrs.get("href", ""))))
        children.append(child)
    drawn = any(child.type == "image" or child.content.strip() for child in children)
    return children if drawn else [_text(inline.content or written_before)]


def _without_lossy_tables(tokens: Sequence[Token], lines: Sequence[str]) -> Iterator[Token]:
    """Show a table as it was written where a row has more cells than the head: the rest would be cut off."""
    skipped_to = ""
    for token in tokens:
        if token.type == "table_open" and token.map and _has_long_row(lines[slice(*token.map)]):
            skipped_to = "table_close"
            written = Token("fence", "code", 0, map=token.map, level=token.level)
            written.content = "\n".join(lines[slice(*token.map)])
            yield written
        elif not skipped_to:
            yield token
        elif token.type == skipped_to:
            skipped_to = ""


def _has_long_row(rows: Sequence[str]) -> bool:
    head, *rest = (len(escapedSplit(row.strip().strip("|"))) for row in rows)
    return any(cells > head for cells in rest)


def _paragraph(text: str, at: Token) -> list[Token]:
    opened = Token("paragraph_open", "p", 1, map=at.map, level=at.level)
    inline = Token("inline", "", 0, map=at.map, level=at.level + 1, content=text, children=[_text(text)])
    return [opened, inline, Token("paragraph_close", "p", -1, level=at.level)]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)
