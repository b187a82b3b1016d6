"""A web page as Markdown that a model can read. Runs in a process of its own (`serve_conversion.py`); pure.

What must stay true: what no visitor of the page would see is not in the text, nothing of it is run or loaded, links
are whole http(s) addresses, and any bytes give some text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote, urljoin, urlsplit

from bs4 import BeautifulSoup
from bs4.element import NavigableString, PreformattedString, Tag
from markdownify import MarkdownConverter

from fermix.agent.documents.charset import decoded, known, stated_in_page
from fermix.visible import only_seen

MOST_DEPTH = 100  # what lies deeper becomes plain text: the renderer calls itself for each level
MOST_ADDRESS_CHARS = 2_000
MOST_RULES = 2_000
MOST_CHARS = 1_000_000

NO_TEXT = frozenset(
    (
    "head", "script", "style", "noscript", "template", "iframe", "frame", "object", "embed", "applet", "svg", "math",
    "canvas", "audio", "video", "map", "input", "select", "textarea", "button", "datalist", "dialog", "nav", "footer",
    )
)  # fmt: skip
"""Elements that hold no text of the page: programs, pictures, forms, and the ways to other pages."""
CELLS = ("td", "th", "tr", "tbody", "thead", "tfoot", "caption")

_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(hidden|collapse)|content-visibility\s*:\s*hidden"
    r"|(?<![-\w])font-size\s*:\s*0*\.?0+(?![.\d])|text-indent\s*:\s*-\d{3}|(?<![-\w])(left|top)\s*:\s*-\d{3}"
    r"|(?<![-\w])clip\s*:\s*rect\(\s*[01](px)?[\s,]|(?<![-\w])color\s*:\s*transparent"
)  # not opacity: whole pages begin transparent and are faded in by a script
_HIDING_RULE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden")
_RULE = re.compile(r"([^{}]{1,1000})\{([^{}]{0,5000})\}")
_SIMPLE = re.compile(r"\s*([.#])([A-Za-z_][\w-]*)\s*")
_BLANK_LINES = re.compile(r"\n(?:[ \t]*\n){2,}")
_LINE_ENDS = re.compile(r"[ \t]+\n")

# Markdown for reading: nothing is escaped that only another renderer would trip over.
_RENDERER = MarkdownConverter(
    heading_style="ATX", bullets="-", autolinks=False, escape_asterisks=False, escape_underscores=False
)


def to_markdown(data: bytes, url: str, charset: str = "") -> str:
    """Return the readable text of an HTML page that came from `url`; `charset` is what the server stated."""
    html = decoded(data, charset if known(charset) else stated_in_page(data)).replace("\0", "")
    page = BeautifulSoup(html, "lxml")
    title = _line(page.title.get_text()) if page.title is not None else ""
    base = page.find("base", href=True)
    where = _address(url, str(base["href"])) if base is not None else url
    _remove_unseen(page)
    _flatten(page)
    content = _content(page)
    _plain_tables(content)
    _whole_links(content, where or url)
    text = tidy(_RENDERER.convert_soup(content))
    whole = text if not title or title in text[: len(title) + 200] else f"# {title}\n\n{text}".rstrip()
    return whole[:MOST_CHARS]


def tidy(text: str) -> str:
    """Return rendered text without characters that nobody sees, without spaces at line ends and empty stretches."""
    return _BLANK_LINES.sub("\n\n", _LINE_ENDS.sub("\n", only_seen(text))).strip()


def _line(text: str) -> str:
    return " ".join(only_seen(text).split())[:300]


def _remove_unseen(page: BeautifulSoup) -> None:
    hidden_classes, hidden_ids = _hidden_names(page.find_all("style"))
    level: list[Tag] = [page]
    while level:
        below = [node for tag in level for node in tag.children]
        level = []
        for node in below:
            if isinstance(node, PreformattedString):
                node.extract()  # a comment, a declaration
            elif isinstance(node, Tag) and (node.name in NO_TEXT or _is_hidden(node, hidden_classes, hidden_ids)):
                node.decompose()
            elif isinstance(node, Tag):
                level.append(node)


def _is_hidden(tag: Tag, classes: frozenset[str], ids: frozenset[str]) -> bool:
    if tag.has_attr("hidden") or str(tag.get("aria-hidden", "")).strip().lower() == "true":
        return True
    if _HIDING.search(str(tag.get("style", "")).lower()):
        return True
    return tag.get("id") in ids or not classes.isdisjoint(tag.get_attribute_list("class"))


def _hidden_names(styles: Iterable[Tag]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the classes and the ids that the page's own style sheets hide at first sight."""
    rules = [rule for style in styles for rule in _RULE.findall(_without_conditions(style.get_text()))]
    hiding = [selectors for selectors, declarations in rules if _HIDING_RULE.search(declarations.lower())]
    texts = [text for selectors in hiding[:MOST_RULES] for text in selectors.split(",")]
    names = [name for text in texts if (name := _SIMPLE.fullmatch(text)) is not None]
    classes, ids = (frozenset(name[2] for name in names if name[1] == mark) for mark in ".#")
    return classes, ids


def _without_conditions(css: str) -> str:
    """Leave out what holds only on some screens or on paper: from each "@" with a block to the end of that block."""
    kept: list[str] = []
    depth, skipping = 0, False
    for part in re.split(r"([{}@;])", css):
        if part == "@" and depth == 0:
            skipping = True
        if not skipping:
            kept.append(part)
        depth += (part == "{") - (part == "}")
        if skipping and depth <= 0 and part in ("}", ";"):
            depth, skipping = 0, False
    return "".join(kept)


def _flatten(page: BeautifulSoup) -> None:
    level: list[Tag] = [page]
    for _ in range(MOST_DEPTH):
        level = [child for tag in level for child in tag.children if isinstance(child, Tag)]
    for tag in level:
        tag.string = tag.get_text(" ")


def _content(page: BeautifulSoup) -> Tag:
    """Return the part that the page itself calls its content, the whole where it names none or several."""
    for name in ("main", "article"):
        found = page.find_all(name)
        if len(found) == 1:
            return found[0]
    return page


def _plain_tables(content: Tag) -> None:
    """Take apart the tables that only place things: those that hold another one."""
    for table in [table for table in content.find_all("table") if table.find("table") is not None]:
        own = [cell for cell in table.find_all(CELLS) if cell.find_parent("table") is table]
        for part in (table, *own):
            part.name = "div"


def _whole_links(content: Tag, url: str) -> None:
    """Make links whole and drop all other attributes; a picture becomes its description."""
    for tag in [content, *content.find_all(True)]:
        link = _address(url, str(tag.get("href", ""))) if tag.name == "a" else None
        described = _line(str(tag.get("alt", ""))) if tag.name == "img" else ""
        tag.attrs.clear()
        if tag.name == "img":
            tag.replace_with(NavigableString(f"[picture: {described}]" if described else ""))
        elif tag.name == "a" and link:
            tag["href"] = link
        elif tag.name == "a":
            tag.unwrap()


def _address(base: str, href: str) -> str | None:
    """Return a link as a whole address without what would break Markdown; None when it is none for the web."""
    try:
        whole = urljoin(base, only_seen(href).strip())
        is_web = urlsplit(whole).scheme in ("http", "https") and bool(urlsplit(whole).hostname)
    except ValueError:
        return None
    shown = quote(whole, safe="%/:?#[]@!$&'*+,;=-._~|", errors="replace")
    return shown if is_web and len(shown) <= MOST_ADDRESS_CHARS else None
