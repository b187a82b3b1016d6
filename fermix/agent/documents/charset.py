"""Bytes from outside as text. Called for pages in a process of their own, and for plain text by whoever fetched it.

What must stay true: it never raises, and no label from outside chooses a codec that is not a plain character set.
"""

from __future__ import annotations

import codecs
import re

MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
META_BYTES = 1_024  # how far into a page browsers look for its own word
LATIN = frozenset({"ascii", "us-ascii", "iso8859-1", "latin-1"})  # labels under which pages use windows-1252

_PLAIN = re.compile(
    r"utf-8|utf-16(-[lb]e)?|ascii|iso8859-\d+|cp125\d|cp8(66|74)|koi8-[rtu]|mac-(roman|cyrillic)|tis-620"
    r"|shift_jis|cp932|euc_jp|iso2022_jp|euc_kr|cp949|gb2312|gbk|gb18030|big5|big5hkscs"
)
_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([a-zA-Z0-9_:.-]{1,40})""", re.IGNORECASE)


def decoded(data: bytes, stated: str = "") -> str:
    """Return bytes as text: by their mark, else by the stated character set, else as UTF-8; never fails."""
    for mark, name in MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    return data.decode(known(stated) or "utf-8", "replace")


def known(label: str) -> str:
    """Return the codec that a label means, "" for one that is unknown or no character set."""
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return ""
    if name in LATIN:
        return "cp1252"
    return name if _PLAIN.fullmatch(name) else ""


def stated_in_page(data: bytes) -> str:
    """Return the label that a page gives itself at its beginning, "" when it gives none."""
    found = _META.search(data[:META_BYTES])
    return found[1].decode("ascii") if found else ""
