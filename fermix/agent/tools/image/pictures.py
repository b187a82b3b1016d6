"""Pictures by their first bytes; what a server, a sender or a name says of their type counts for nothing."""

from __future__ import annotations

from dataclasses import dataclass

ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp"}


@dataclass(frozen=True, slots=True)
class Picture:
    """Whole bytes of a type that every backend takes and every chat shows. Nothing here decodes them."""

    mime: str
    data: bytes


def picture_of(data: bytes) -> Picture | None:
    """Return the bytes as a PNG, JPEG or WebP picture, None when they are none."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return Picture("image/png", data)
    if data.startswith(b"\xff\xd8\xff"):
        return Picture("image/jpeg", data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return Picture("image/webp", data)
    return None
