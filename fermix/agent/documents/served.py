"""The other side of `reading.py`: what the hidden verb `_convert` does, in a process that may die of what it reads.

A request is one line of JSON and the bytes behind it; the answer is text on stdout. Nothing else is printed, since
the reader takes all of it for the text.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Mapping

from fermix.agent.documents import page, results

MOST_MEMORY_BYTES = 1_073_741_824
MOST_CPU_S = 20

CONVERTED, FAILED = 0, 1

Convert = Callable[[bytes, Mapping[str, str]], str]


def _page(data: bytes, options: Mapping[str, str]) -> str:
    return page.to_markdown(data, options["url"], options["charset"])


def _results(data: bytes, options: Mapping[str, str]) -> str:
    return results.to_results(data)


KINDS: Mapping[str, Convert] = {"page": _page, "list of results": _results}


def serve_conversion(request: bytes, write: Callable[[bytes], object]) -> int:
    """Answer one request; return the exit code. What a library raises ends the process: it is here to die."""
    limit_self()
    head, _, data = request.partition(b"\n")
    kind, options = json.loads(head)
    write(KINDS[kind](data, options).encode("utf-8", "replace"))
    return CONVERTED


def limit_self() -> None:
    """Bound memory, time and files of this process, and let nothing be heard of its warnings."""
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 2)
    os.close(silent)
