"""`fermix _convert`, hidden: read a foreign document as text in a process that may die of it. Request on stdin."""

from __future__ import annotations

import sys


def main(argv: list[str]) -> int:
    from fermix.agent.documents.serve_conversion import serve_conversion

    return serve_conversion(sys.stdin.buffer.read(), sys.stdout.buffer.write)
