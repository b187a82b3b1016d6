"""The work of the hidden verb `_document`: one file on stdin, its text or a smaller picture on stdout.

Runs in a process of its own with hard limits, behind walls where there are any: what parses files of others is
expected to break, hang or be taken over. What it raises ends it with code 1, which the reader calls a broken file.
"""

from __future__ import annotations

import itertools
import resource
from collections.abc import Callable, Iterator
from typing import BinaryIO

from fermix.agent.documents.limits import FAILED, FINISHED, MEMORY_BYTES, NOT_A_DOCUMENT, TEXT_BYTES, TIMEOUT_S
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


def serve(file: BinaryIO, kind: str, first: int, most: int | None, write: Write) -> int:
    """Answer one request; return the exit code. `first` and `most` count pages of a PDF, lines of all others."""
    try:
        if kind == "picture":
            from fermix.agent.documents.pictures import shrunk

            write(shrunk(file))
            return FINISHED
        pieces = _pieces(file, kind, first)
        if pieces is None:
            return NOT_A_DOCUMENT
        write_pieces(pieces, first, most, write)
    except Unusable as error:
        write(str(error).encode("utf-8"))
        return FAILED
    except MemoryError:
        write(b"needs more memory than a file may; it was not read")
        return FAILED
    return FINISHED


def write_pieces(pieces: Iterator[str], first: int, most: int | None, write: Write) -> None:
    """Write pages or lines as far as they fit, and where to go on. Raises: Unusable when there are none."""
    room, last = TEXT_BYTES, None if most is None else first + most
    number = first
    for number, piece in enumerate(pieces, start=first):
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
        raise Unusable("holds no text" if first == 1 else f"has no part {number}; it is shorter")


def _pieces(file: BinaryIO, kind: str, first: int) -> Iterator[str] | None:
    """Return what is asked for, None when this is no document after all."""
    if kind == "pdf":
        from fermix.agent.documents.pdf import pages

        return pages(file, first)
    from fermix.agent.documents import package, sheets, word

    opened = package.open_package(file)
    names = frozenset(opened.namelist())
    if word.MAIN in names:
        return itertools.islice(word.paragraphs(opened), first - 1, None)
    if sheets.MAIN in names:
        return itertools.islice(sheets.rows(file), first - 1, None)
    return None
