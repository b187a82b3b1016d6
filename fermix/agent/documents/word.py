"""The text of a Word document, a paragraph or a row of a table at a time. Used in the hidden verb only."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from typing import IO
from xml.etree.ElementTree import Element

from defusedxml.ElementTree import iterparse

MAIN = "word/document.xml"
NOTES = (("word/footnotes.xml", "[footnotes]"), ("word/endnotes.xml", "[endnotes]"))

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_PARAGRAPH, _TABLE, _ROW, _CELL = f"{_W}p", f"{_W}tbl", f"{_W}tr", f"{_W}tc"
_SECOND_COPY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"  # for older programs
_SIGNS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}


def paragraphs(package: zipfile.ZipFile) -> Iterator[str]:
    """Give the text of the document and of its notes; raises what the XML parser raises."""
    with package.open(MAIN) as part:
        yield from _paragraphs(part)
    for name, title in NOTES:
        if name in package.namelist():
            with package.open(name) as part:
                texts = [text for text in _paragraphs(part) if text.strip()]
            yield from (title, *texts) if texts else ()


def _paragraphs(part: IO[bytes]) -> Iterator[str]:
    tables = copies = 0
    for event, element in iterparse(part, ("start", "end"), forbid_dtd=True):
        step = 1 if event == "start" else -1
        tables += step * (element.tag == _TABLE)
        copies += step * (element.tag == _SECOND_COPY)
        if event == "start" or copies:
            continue
        if element.tag == _PARAGRAPH and not tables:
            yield _text(element)
            element.clear()
        elif element.tag == _ROW and tables == 1:
            yield "\t".join(_cell(cell) for cell in element.iter(_CELL))
            element.clear()


def _cell(cell: Element) -> str:
    return " ".join(_text(paragraph).replace("\n", " ") for paragraph in cell.iter(_PARAGRAPH)).strip()


def _text(paragraph: Element) -> str:
    parts = (_SIGNS.get(node.tag, node.text or "" if node.tag == f"{_W}t" else "") for node in paragraph.iter())
    return "".join(parts)
