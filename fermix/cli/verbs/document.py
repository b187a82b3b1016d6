"""`fermix _document`, hidden: read a document or a picture, given as stdin, in a process that may break."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from fermix.agent.documents.limits import Part


def main(argv: list[str]) -> int:
    from fermix.agent.documents.limits import Part
    from fermix.agent.documents.serve_file import bound_ourselves
    from fermix.native.sweep import die_with_parent

    parser = argparse.ArgumentParser(prog="fermix _document", description="Read a document for the daemon.")
    parser.add_argument("kind", choices=("pdf", "office", "picture"))
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--most", type=int)
    parser.add_argument("--parent", type=int, help="the process to end with, where no walls end it")
    options = parser.parse_args(argv)
    if options.parent is not None:
        die_with_parent(options.parent)
    bound_ourselves()
    with (
        open(0, "rb", closefd=False) as file,
        open(1, "wb", buffering=0, closefd=False) as output,
        contextlib.redirect_stdout(sys.stderr),  # nothing that a library prints gets into the answer
    ):
        return _serve(options.kind, file, Part(options.first, options.most), output.write)


def _serve(kind: str, file: BinaryIO, part: Part, write: Callable[[bytes], object]) -> int:
    """Import the libraries of one kind and no others: each costs up to a fifth of a second."""
    from fermix.agent.documents.serve_file import serve_picture, serve_text

    if kind == "picture":
        from fermix.agent.documents.shrink import shrunk

        return serve_picture(shrunk, file, write)
    if kind == "pdf":
        from fermix.agent.documents.pdf import pages

        return serve_text(pages, file, part, write)
    from fermix.agent.documents.office import lines

    return serve_text(lines, file, part, write)
