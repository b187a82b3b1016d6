"""How a download looks: a bar on a terminal, a line for each tenth elsewhere. Used by the verbs that fetch."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fermix.events import DownloadProgress
    from fermix.fetch import Report

PLAIN_STEP_PERCENT = 10


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
