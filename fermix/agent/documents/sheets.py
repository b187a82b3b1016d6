"""The cells of an Excel workbook, a row at a time, as they were last shown. Used in the hidden verb only."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time
from typing import BinaryIO

import openpyxl

MAIN = "xl/workbook.xml"


def rows(file: BinaryIO) -> Iterator[str]:
    """Give each sheet's name and its rows that hold something, `number: cells` with tabs between."""
    book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
    for sheet in book.worksheets:
        yield f"[sheet {sheet.title}]"
        sheet.reset_dimensions()  # a file may state a million columns
        for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
            if text := "\t".join(map(_text, cells)).rstrip("\t"):
                yield f"{number}: {text}"


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(" ").removesuffix(" 00:00:00")
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value).replace("\t", " ").replace("\n", " ")
