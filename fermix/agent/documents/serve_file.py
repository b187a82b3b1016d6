"""The work of the hidden verb `_document`: one file on stdin, its text or a smaller picture on stdout.

Runs in a process of its own with hard limits, behind walls where there are any: what parses files of others is
expected to break, hang or be taken over. What it raises ends it with code 1, which the reader calls a broken file.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from typing import BinaryIO

from fermix.agent.documents.limits import FAILED, FINISHED, MEMORY_BYTES, NOT_A_DOCUMENT, TEXT_BYTES, TIMEOUT_S, Part
from fermix.errors import Unusable

Write = Callable[[bytes], object]


def bound_ourselves() -> None:
    """Take away from this process what it does not need; nobody gives it back."""
    limits = (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, int(TIMEOUT_S)),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
    )
    for limit, value in limits:
        resource.setrlimit(limit, (value, value))


def serve_text(read: Callable[[BinaryIO, int], Iterator[str] | None], file: BinaryIO, part: Part, write: Write) -> int:
    """Write what `read` finds from the first page or line of `part` on; return the exit code."""

    def work() -> int:
        pieces = read(file, part.first)
        if pieces is None:
            return NOT_A_DOCUMENT
        write_pieces(pieces, part, write)
        return FINISHED

    return _told(work, write)


def serve_picture(shrink: Callable[[BinaryIO], bytes], file: BinaryIO, write: Write) -> int:
    """Write a smaller picture; return the exit code."""

    def work() -> int:
        write(shrink(file))
        return FINISHED

    return _told(work, write)


def _told(work: Callable[[], int], write: Write) -> int:
    """Put into words what can be; the rest ends this process."""
    try:
        return work()
    except Unusable as error:
        write(str(error).encode("utf-8"))
    except MemoryError:
        write(b"needs more memory than a file may; it was not read")
    return FAILED


def write_pieces(pieces: Iterator[str], part: Part, write: Write) -> None:
    """Write pages or lines as far as they fit, and where to go on. Raises: Unusable when there are none."""
    room, last = TEXT_BYTES, None if part.most is None else part.first + part.most
    number = part.first
    for number, piece in enumerate(pieces, start=part.first):
        data = piece.encode("utf-8", "replace") + b"\n"
        if number == last or (len(data) > room and room < TEXT_BYTES):
            write(f"[more follows: read on with offset={number}]".encode())
            return
        if len(data) > room:
            write(data[:room].decode("utf-8", "ignore").encode())
            write(f"\n[this part goes on; the next one is offset={number + 1}]".encode())
            return
        write(data)
        room -= len(data)
    if room == TEXT_BYTES:
        raise Unusable("holds no text" if part.first == 1 else f"has no part {number}; it is shorter")
