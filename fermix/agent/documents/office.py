"""Which kind of Office file an archive is, and its text. Used in the hidden verb only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import BinaryIO

from fermix.agent.documents import package, sheets, word


def lines(file: BinaryIO, first: int) -> Iterator[str] | None:
    """Give the text from the line `first` on; None for an archive of another kind. Raises: Unusable, BadZipFile."""
    opened = package.open_package(file)
    names = frozenset(opened.namelist())
    if word.MAIN in names:
        return itertools.islice(word.paragraphs(opened), first - 1, None)
    if sheets.MAIN in names:
        return itertools.islice(sheets.rows(file), first - 1, None)
    return None
