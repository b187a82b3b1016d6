"""The text of a PDF, a page at a time. Used in the hidden verb only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from pypdf import PageObject, PasswordType, PdfReader
from pypdf.errors import DependencyError, PyPdfError

from fermix.errors import Unusable

BROKEN = (PyPdfError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What a damaged or hostile page raises out of the library."""


def pages(file: BinaryIO, first: int) -> Iterator[str]:
    """Give the text of each page from the page `first` on, under a line with its number. Raises: Unusable."""
    reader = PdfReader(file)
    if reader.is_encrypted and not _opens(reader):
        raise Unusable("has a password; ask for a copy without one")
    count = len(reader.pages)
    for number in range(first, count + 1):
        yield f"[page {number} of {count}]\n{_text(reader.pages[number - 1])}"
    if count < first:
        raise Unusable(f"has only {count} pages")


def _opens(reader: PdfReader) -> bool:
    """Many files are encrypted with an empty password, only to forbid printing."""
    try:
        return reader.decrypt("") is not PasswordType.NOT_DECRYPTED
    except DependencyError as error:
        raise Unusable("is encrypted in a way that cannot be opened here; ask for a plain copy") from error


def _text(page: PageObject) -> str:
    try:
        return page.extract_text().strip() or "(no text on this page; it may be a picture)"
    except BROKEN:
        return "(this page is damaged and cannot be read)"
