"""What the file tools cost, called through the dispatcher as the loop does, against the plain way of doing the same.

`content_search` against `grep -rn` over 20,000 files (and ripgrep, where it is installed); `file_read` of 100 KB
against opening and reading the file.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from bench.figures import Figure, p50
from fermix.agent.dispatch import Dispatcher
from fermix.agent.sandbox import Sandbox, SandboxSettings
from fermix.agent.tools import files, search
from fermix.clock import SystemClock
from fermix.events import Events
from fermix.home import Home
from fermix.native.program import own_program
from fermix.workers import Workers
from tests.fakes.turns import make_call, make_scope

FILES, FOLDERS = 20_000, 200
SEARCHES, READS = 7, 200
NEEDLE = "needle in a haystack"
LINES = 40
FILE_BYTES = 100_000


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder).resolve() / "user/.fermix")
        home.prepare()
        _fill(home.workspace)
        yield from asyncio.run(_measure(home))


async def _measure(home: Home) -> list[Figure]:
    workers, clock = Workers(), SystemClock()
    sandbox = Sandbox(SandboxSettings(), home, home.root, home.root.parent, {"PATH": "/usr/bin:/bin"})
    program = own_program({})
    scope = make_scope(*files.tools(sandbox, workers, program), *search.tools(sandbox, workers, program))
    dispatcher = Dispatcher(Events(clock), clock)

    async def call(name: str, **arguments: str | int) -> str:
        result = await dispatcher.dispatch(make_call(name, **arguments), scope)
        assert result.ok, result.text
        return result.text

    async def look() -> None:
        assert (await call("content_search", pattern=NEEDLE, path="tree", max_results=1_000)).count("\n") == FOLDERS - 1

    async def read() -> None:
        assert len(await call("file_read", path="text")) == FILE_BYTES

    async def grep(program: str) -> None:
        subprocess.run([program, "-rn", NEEDLE, str(home.workspace / "tree")], stdout=subprocess.DEVNULL, check=True)

    async def plain() -> None:
        (home.workspace / "text").read_text("utf-8")

    searched, grepped = await _medians(SEARCHES, look, lambda: grep("grep"))
    found = [
        Figure("files.search", searched * 1000, "ms"),
        Figure("files.search_ratio", searched / grepped, "times grep -rn over 20,000 files", 5.0),
    ]
    if ripgrep := shutil.which("rg"):
        (ripped,) = await _medians(SEARCHES, lambda: grep(ripgrep))
        found.append(Figure("files.search_ripgrep_ratio", searched / ripped, "times ripgrep"))
    taken, bare = await _medians(READS, read, plain)
    workers.close()
    return [
        *found,
        Figure("files.read", taken * 1e6, "µs for 100 KB"),
        Figure("files.read_ratio", taken / bare, "times an open and read", 10.0),
    ]


async def _medians(runs: int, *measures: Callable[[], Awaitable[None]]) -> list[float]:
    """Measure each in turn; the first round is not counted."""
    rounds = [[await _seconds(measure) for measure in measures] for _ in range(runs + 1)][1:]
    return [p50(values) for values in zip(*rounds, strict=True)]


async def _seconds(measure: Callable[[], Awaitable[None]]) -> float:
    began_at = time.perf_counter()
    await measure()
    return time.perf_counter() - began_at


def _fill(workspace: Path) -> None:
    text = "".join(f"{number}: some words of a plain line that nobody looks for\n" for number in range(LINES))
    for number in range(FILES):
        folder = workspace / "tree" / str(number % FOLDERS)
        folder.mkdir(parents=True, exist_ok=True)
        found = f"{NEEDLE}\n" if number < FOLDERS else ""
        (folder / f"{number}.txt").write_text(text + found, "utf-8")
    line = "x" * 99 + "\n"
    (workspace / "text").write_text(line * (FILE_BYTES // len(line)), "utf-8")
