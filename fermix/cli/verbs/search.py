"""`fermix _search`, hidden: search files by a regular expression in a process that can be killed. Request on stdin."""

from __future__ import annotations

import io
import sys


def main(argv: list[str]) -> int:
    from fermix.agent.tools.search import serve_search

    output = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", errors="replace", newline="\n", write_through=True)
    try:
        return serve_search(sys.stdin.buffer.read(), output.write)
    finally:
        output.detach()  # or it would close the stream below, which is flushed once more at the end
