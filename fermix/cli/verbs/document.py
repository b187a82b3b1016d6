"""`fermix _document`, hidden: read a document or a picture, given as stdin, in a process that may break."""

from __future__ import annotations

import argparse
import contextlib
import sys


def main(argv: list[str]) -> int:
    from fermix.agent.documents.served_file import bound_ourselves, serve
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
        return serve(file, options.kind, options.first, options.most, output.write)
