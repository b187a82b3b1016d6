"""The ZIP archive that a Word or Excel file is, opened with its bombs looked for. Used in the hidden verb only."""

from __future__ import annotations

import zipfile
from typing import BinaryIO

from fermix.errors import Unusable

MOST_PARTS = 10_000
MOST_BYTES = 400_000_000  # of all parts together once unpacked; `zipfile` reads no more of a part than is declared
MOST_PART_BYTES = 150_000_000
MOST_RATIO = 200  # XML shrinks to a tenth or twentieth
RATIO_FROM_BYTES = 5_000_000
IS_LOCKED = 0x1


def open_package(file: BinaryIO) -> zipfile.ZipFile:
    """Open an archive. Raises: Unusable, BadZipFile."""
    package = zipfile.ZipFile(file)
    parts = package.infolist()
    if len(parts) > MOST_PARTS or sum(part.file_size for part in parts) > MOST_BYTES:
        raise Unusable("is too large once it is unpacked, so it was not read")
    if any(map(_is_bomb, parts)):
        raise Unusable("is a bomb: a small archive that unpacks to very much, so it was not read")
    if any(part.flag_bits & IS_LOCKED for part in parts):
        raise Unusable("has a password; ask for a copy without one")
    return package


def _is_bomb(part: zipfile.ZipInfo) -> bool:
    if part.file_size > MOST_PART_BYTES:
        return True
    return part.file_size > RATIO_FROM_BYTES and part.file_size > MOST_RATIO * part.compress_size
