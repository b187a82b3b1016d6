"""How waiting looks. A download is a bar on a terminal and a line for each tenth elsewhere, for the verbs that fetch;
work on our own files is one line on a terminal, and only when it takes its time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fermix.events import DownloadProgress
    from fermix.fetch import Report

PLAIN_STEP_PERCENT = 10
PATIENCE_S = 2.0


def show_progress(*, silent: bool = False) -> AbstractContextManager[Report]:
    """Open the view that fits standard output; a silent one shows nothing."""
    if silent:
        return nullcontext(_ignore)
    return _bar() if sys.stdout.isatty() else nullcontext(_PlainLines())


def _ignore(_: DownloadProgress) -> None:
    pass


class _PlainLines:
    """A line for each tenth, for a log or a pipe."""

    def __init__(self) -> None:
        self._next_percent = 0

    def __call__(self, progress: DownloadProgress) -> None:
        percent = 100 * progress.done_bytes // progress.total_bytes
        if progress.state == "running" and percent < self._next_percent:
            return
        self._next_percent = 0 if progress.state == "done" else percent - percent % 10 + PLAIN_STEP_PERCENT
        whole_mb = max(progress.total_bytes / 1e6, 0.1)  # as `fermix model status` tells it
        note = f"{percent} % of {whole_mb:.3g} MB" if progress.state == "running" else progress.state
        print(f"{progress.name}: {note}", flush=True)


@contextmanager
def _bar() -> Generator[Report]:
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn()) as screen:
        tasks = {"": screen.add_task("connecting", total=None)}

        def report(progress: DownloadProgress) -> None:
            if progress.name not in tasks:
                tasks[progress.name] = tasks.pop("", None) or screen.add_task(progress.name)
            note = "checking " if progress.state == "verifying" else ""
            screen.update(
                tasks[progress.name],
                description=note + progress.name,
                completed=progress.done_bytes,
                total=progress.total_bytes,
            )

        yield report


class PatientLine:
    """One line on a terminal's standard error, once something takes longer than two seconds; else nothing."""

    def __init__(self) -> None:
        self._began_at = time.monotonic()
        self._shown = ""

    def __call__(self, phase: str, share: float) -> None:
        if not sys.stderr.isatty() or time.monotonic() - self._began_at < PATIENCE_S:
            return
        line = f"{phase}: {share:.0%}"
        if line != self._shown:
            self._print(line)

    def end(self) -> None:
        """Take the line away, so that what follows begins at the margin."""
        if self._shown:
            self._print("")
            print(end="\r", file=sys.stderr, flush=True)

    def _print(self, line: str) -> None:
        print(f"\r{line.ljust(len(self._shown))}", end="", file=sys.stderr, flush=True)
        self._shown = line
