"""`fermix model`: what the embedded model needs on this machine, and fetching it. Works without a daemon.

`fetch --json` prints one line of JSON for each step of progress, as the daemon reads it when it runs the verb itself.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fermix.cli import output
from fermix.errors import FermixError
from fermix.home import Home

if TYPE_CHECKING:
    from fermix.agent.providers.local_files import LocalFiles
    from fermix.events import DownloadProgress
    from fermix.fetch import Report

PLAIN_STEP_PERCENT = 10


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    if options.action is None:
        return output.wrong_use("model", "say `status` or `fetch`")
    try:
        home = Home.locate(os.environ)
        home.prepare()
        return _status(home, as_json=options.json) if options.action == "status" else _fetch(home, options)
    except FermixError as error:
        return output.failed("model", str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fermix model", description="The embedded model: what it needs, fetching it.")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    status = actions.add_parser("status", help="tell what is here and what is missing")
    status.add_argument("--json", action="store_true", help="print one JSON object")
    fetch = actions.add_parser("fetch", help="fetch what is missing; a broken fetch goes on where it stopped")
    fetch.add_argument(
        "--from",
        dest="brought",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="take it from this file instead of the network; may be given once for each missing file",
    )
    fetch.add_argument("--mirror", metavar="URL", help="ask this address first, for the same file names")
    fetch.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser


def _status(home: Home, *, as_json: bool) -> int:
    from fermix.agent.providers.local_files import MODEL_NAME, LocalFiles

    files = LocalFiles.of(home.models)
    missing = [{"file": artifact.file, "size_bytes": artifact.size_bytes} for artifact in files.missing()]
    if as_json:
        output.print_json({"name": MODEL_NAME, "folder": str(files.folder), "missing": missing})
        return 0
    if not missing:
        print(f"{MODEL_NAME} is ready in {files.folder}")
        return 0
    print(f"{MODEL_NAME} is not here yet; `fermix model fetch` brings {_size(files)} to {files.folder}:")
    for artifact in files.missing():
        print(f"  {artifact.file}  {artifact.size_bytes / 1e6:.0f} MB")
    if done := files.done_bytes():
        print(f"{done / 1e6:.0f} MB of it are here from an earlier fetch")
    return 0


def _fetch(home: Home, options: argparse.Namespace) -> int:
    from fermix.agent.providers.local_files import MODEL_NAME, LocalFiles, check_brought

    files = LocalFiles.of(home.models)
    if options.json:
        return _fetch_for_programs(files, options)
    if files.missing():
        print(f"Fetching {MODEL_NAME}: {_size(files)}, once, to {files.folder}", flush=True)
        with _bar() if sys.stdout.isatty() else nullcontext(_PlainLines()) as report:
            files.fetch(options.brought, options.mirror, report)
    else:
        check_brought((), options.brought)
    print(f"{MODEL_NAME} is ready in {files.folder}")
    return 0


def _fetch_for_programs(files: LocalFiles, options: argparse.Namespace) -> int:
    from fermix.events import DownloadProgress

    missing = files.missing()
    try:
        files.fetch(options.brought, options.mirror, _report_json)
    except FermixError as error:
        failed = (files.missing() or (files.model,))[0]
        _report_json(DownloadProgress(failed.file, files.done_bytes(), failed.size_bytes, "failed", str(error)))
        return 1
    if not missing:
        size_bytes = files.model.size_bytes
        _report_json(DownloadProgress(files.model.file, size_bytes, size_bytes, "done"))
    return 0


def _size(files: LocalFiles) -> str:
    return f"{sum(artifact.size_bytes for artifact in files.missing()) / 1e6:.0f} MB"


def _report_json(progress: DownloadProgress) -> None:
    print(json.dumps(asdict(progress)), flush=True)


class _PlainLines:
    """A line for each tenth, for a log or a pipe."""

    def __init__(self) -> None:
        self._next_percent = 0

    def __call__(self, progress: DownloadProgress) -> None:
        percent = 100 * progress.done_bytes // progress.total_bytes
        if progress.state == "running" and percent < self._next_percent:
            return
        self._next_percent = 0 if progress.state == "done" else percent - percent % 10 + PLAIN_STEP_PERCENT
        note = f"{percent} % of {progress.total_bytes / 1e6:.0f} MB" if progress.state == "running" else progress.state
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
