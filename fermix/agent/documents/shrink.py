"""Decode a picture and make it small. Used in the hidden verb only."""

from __future__ import annotations

import io
from typing import BinaryIO

from PIL import Image, ImageOps

from fermix.agent.documents.pictures import LONGEST_SIDE, MOST_PIXELS

QUALITY = 85
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")


def shrunk(file: BinaryIO) -> bytes:
    """Return a picture as a JPEG that a model takes. Raises: OSError, ValueError for a broken one."""
    Image.MAX_IMAGE_PIXELS = MOST_PIXELS
    with Image.open(file, formats=FORMATS) as picture:
        picture.draft("RGB", (LONGEST_SIDE, LONGEST_SIDE))  # a JPEG is decoded at a fraction of its size
        upright = ImageOps.exif_transpose(picture)
        upright.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
        seen = upright.convert("RGBA")
        ground = Image.new("RGB", seen.size, "white")  # JPEG knows no transparency
        ground.paste(seen, mask=seen)
    output = io.BytesIO()
    ground.save(output, "JPEG", quality=QUALITY)
    return output.getvalue()
