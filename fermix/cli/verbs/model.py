"""`fermix model`: what the local models need on this machine, and fetching it. Works without a daemon.

Two of them: the one that answers, and with `--voice` the one that listens to voice notes. `fetch --json` prints one
line of JSON for each step of progress, as the daemon reads it when it runs the verb itself.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from fermix.cli import output
from fermix.cli.progress import show_progress
from fermix.errors import FermixError
from fermix.home import Home

if TYPE_CHECKING:
    from fermix.events import DownloadProgress
    from fermix.fetch import Artifact, Report


class Files(Protocol):
    """What a model needs on this machine."""

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> Path: ...

    @property
    def weights(self) -> Artifact: ...

    @property
    def unsupported(self) -> str: ...

    def missing(self) -> tuple[Artifact, ...]: ...

    def done_bytes(self) -> int: ...

    def fetch(self, brought: Sequence[Path], mirror: str | None, report: Report) -> None: ...


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    if options.action is None:
        return output.wrong_use("model", "say `status` or `fetch`")
    try:
        home = Home.locate(os.environ)
        home.prepare()
        return _status(home, as_json=options.json) if options.action == "status" else _fetch(home, options)
    except FermixError as error:
        return output.failed("model", str(error), as_json=options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fermix model", description="The local models: what they need, fetching it.")
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    status = actions.add_parser("status", help="tell what is here and what is missing")
    status.add_argument("--json", action="store_true", help="print one JSON object")
    fetch = actions.add_parser("fetch", help="fetch what is missing; a broken fetch goes on where it stopped")
    fetch.add_argument("--voice", action="store_true", help="the model that listens to voice notes (English only)")
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
    answering, listening = _files(home, voice=False), _files(home, voice=True)
    if as_json:
        output.print_json({**_state(answering), "voice": {**_state(listening), "unsupported": listening.unsupported}})
        return 0
    _show(answering, "fermix model fetch")
    print()
    _show(listening, "fermix model fetch --voice")
    return 0


def _state(files: Files) -> dict[str, object]:
    missing = [{"file": artifact.file, "size_bytes": artifact.size_bytes} for artifact in files.missing()]
    return {"name": files.name, "folder": str(files.folder), "missing": missing}


def _show(files: Files, command: str) -> None:
    if files.unsupported:
        print(f"{files.name}: {files.unsupported}")
        return
    if not files.missing():
        print(f"{files.name} is ready in {files.folder}")
        return
    print(f"{files.name} is not here yet; `{command}` brings {_size(files)} to {files.folder}:")
    for artifact in files.missing():
        print(f"  {artifact.file}  {max(artifact.size_bytes / 1e6, 0.1):.3g} MB")
    if done := files.done_bytes():
        print(f"{done / 1e6:.0f} MB of it are here from an earlier fetch")


def _fetch(home: Home, options: argparse.Namespace) -> int:
    from fermix.agent.providers.bring import check_brought

    files = _files(home, voice=options.voice)
    if options.json:
        return _fetch_for_programs(files, options)
    if files.missing():
        print(f"Fetching {files.name}: {_size(files)}, once, to {files.folder}", flush=True)
        with show_progress() as report:
            files.fetch(options.brought, options.mirror, report)
    else:
        check_brought((), options.brought)
    print(f"{files.name} is ready in {files.folder}")
    return 0


def _fetch_for_programs(files: Files, options: argparse.Namespace) -> int:
    from fermix.events import DownloadProgress

    missing = files.missing()
    try:
        files.fetch(options.brought, options.mirror, _report_json)
    except FermixError as error:
        failed = (files.missing() or (files.weights,))[0]
        _report_json(DownloadProgress(failed.file, files.done_bytes(), failed.size_bytes, "failed", str(error)))
        return 1
    if not missing:
        size_bytes = files.weights.size_bytes
        _report_json(DownloadProgress(files.weights.file, size_bytes, size_bytes, "done"))
    return 0


def _files(home: Home, *, voice: bool) -> Files:
    from fermix.agent.providers.local_files import LocalFiles
    from fermix.gateway.transcription.files import VoiceFiles

    return VoiceFiles.of(home.models) if voice else LocalFiles.of(home.models)


def _size(files: Files) -> str:
    return f"{sum(artifact.size_bytes for artifact in files.missing()) / 1e6:.0f} MB"


def _report_json(progress: DownloadProgress) -> None:
    print(json.dumps(asdict(progress)), flush=True)
