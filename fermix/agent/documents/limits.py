"""Bounds of the hidden verb `_document` and what its exit codes mean."""

from __future__ import annotations

from dataclasses import dataclass

TEXT_BYTES = 100_000  # of one answer: fits whole into one result, so that no hole opens in the middle of a file
TIMEOUT_S = 60.0
MEMORY_BYTES = 1_073_741_824
MOST_FILE_BYTES = 100_000_000
MOST_PICTURE_BYTES = 10_000_000

FINISHED, FAILED, NOT_A_DOCUMENT = 0, 3, 4  # 1 is what a broken file makes of Python


@dataclass(frozen=True, slots=True)
class Part:
    """What is asked for of a file, in pages of a PDF and lines of all others; `most` None: all that fit."""

    first: int = 1
    most: int | None = None
