"""How large a picture is, by its header alone: a few steps over bytes, safe in the daemon itself."""

from __future__ import annotations

import struct

LONGEST_SIDE = 1_568  # more is scaled down by the services, at our cost
MOST_PIXELS = 100_000_000  # of a phone's best camera; four bytes each while it is decoded
UNTOUCHED_BYTES = 3_500_000  # under 5 MB as base64, the smallest bound of the wires

Size = tuple[int, int]  # width and height

_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xDA)})  # of JPEG's markers
_FRAMES = frozenset({*range(0xC0, 0xD0)}) - {0xC4, 0xC8, 0xCC}


def size_of(head: bytes) -> Size | None:
    """Return width and height that a header states, None when it is none or breaks off."""
    try:
        if head.startswith(b"\x89PNG"):
            return _checked(struct.unpack_from(">II", head, 16)) if head[12:16] == b"IHDR" else None
        if head.startswith(b"GIF8"):
            return _checked(struct.unpack_from("<HH", head, 6))
        if head.startswith(b"\xff\xd8"):
            return _of_jpeg(head)
        return _of_webp(head)
    except struct.error:
        return None


def is_small(size: Size, size_bytes: int) -> bool:
    """Say whether a picture goes to a model as it is."""
    return max(size) <= LONGEST_SIDE and size_bytes <= UNTOUCHED_BYTES


def _checked(size: tuple[int, ...]) -> Size | None:
    width, height = size
    return (width, height) if width > 0 and height > 0 else None


def _of_jpeg(head: bytes) -> Size | None:
    at = 2
    while head[at] == 0xFF if at < len(head) else False:
        marker = head[at + 1] if at + 1 < len(head) else 0
        if marker in _FRAMES:
            height, width = struct.unpack_from(">HH", head, at + 5)
            return _checked((width, height))
        at += 1 if marker == 0xFF else 2  # any number of 0xFF may stand before a marker
        if marker not in _WITHOUT_LENGTH and marker != 0xFF:
            at += max(2, struct.unpack_from(">H", head, at)[0])
    return None


def _of_webp(head: bytes) -> Size | None:
    if head[12:16] == b"VP8 ":
        width, height = struct.unpack_from("<HH", head, 26)
        return _checked((width & 0x3FFF, height & 0x3FFF))
    if head[12:16] == b"VP8L":
        (bits,) = struct.unpack_from("<I", head, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if head[12:16] == b"VP8X":
        width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))
        return width, height
    return None
