"""The other side of `reading.py`: what the hidden verb `_convert` does, in a process that may die of what it reads.

A request is one line of JSON and the bytes behind it; the answer is text on stdout.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from fermix.agent.documents import page, results
from fermix.agent.documents.serve_file import bound_ourselves
from fermix.native.sweep import die_with_parent

CONVERTED = 0  # 1 is what a broken document makes of Python

Convert = Callable[[bytes, Mapping[str, str]], str]


def _page(data: bytes, options: Mapping[str, str]) -> str:
    return page.to_markdown(data, options["url"], options["charset"])


def _results(data: bytes, options: Mapping[str, str]) -> str:
    return results.to_results(data)


KINDS: Mapping[str, Convert] = {"page": _page, "list of results": _results}


def serve_conversion(request: bytes, write: Callable[[bytes], object]) -> int:
    """Answer one request; return the exit code. What a library raises ends the process: it is here to die."""
    head, _, data = request.partition(b"\n")
    kind, options, parent = json.loads(head)
    if parent is not None:
        die_with_parent(parent)
    bound_ourselves()
    write(KINDS[kind](data, options).encode("utf-8", "replace"))
    return CONVERTED
