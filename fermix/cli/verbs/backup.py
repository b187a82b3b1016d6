"""`fermix backup`: one checked file with all that Fermix remembers and how it is set up. A daemon may run meanwhile."""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fermix.cli import output
from fermix.cli.progress import PatientLine
from fermix.errors import FermixError, NeedsOperator
from fermix.home import Home
from fermix.visible import spelled

if TYPE_CHECKING:
    from fermix.store.backup import Made


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    try:
        made = _make(Home.locate(os.environ), options.file, replace=options.force)
    except FermixError as error:
        return output.failed("backup", str(error), as_json=options.json)
    if options.json:
        output.print_json(_as_json(made))
    else:
        _show(made)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fermix backup",
        description="Write one private file with the database, config.toml, the prompt files and the grants. It is "
        "checked and read back before it gets its name. A daemon may run and write meanwhile. Keys that "
        "`fermix setup` keeps (auth.json, the keyring) are not in it; a key written in config.toml is.",
    )
    parser.add_argument(
        "file", nargs="?", type=Path, default=Path(), metavar="FILE",
        help="where to; a folder gets a file with the time in its name (default: the current folder)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="replace FILE when it is an earlier backup")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _make(home: Home, wanted: Path, *, replace: bool) -> Made:
    from fermix.store.backup import make_backup

    if home.restoring.exists():
        raise NeedsOperator("a restore was cut off", advice="run `fermix start`, which finishes it, then back up")
    line = PatientLine()
    try:
        return make_backup(home, wanted.absolute(), datetime.now().astimezone(), line, replace=replace)
    finally:
        line.end()


def _as_json(made: Made) -> dict[str, object]:
    manifest = made.manifest
    return {
        "status": "ok",
        "file": str(made.path),
        "size_bytes": made.size_bytes,
        "created_at": manifest.created_at,
        "schema_version": manifest.schema_version,
        "rows": manifest.rows,
        "files": sorted(manifest.files),
    }


def _show(made: Made) -> None:
    manifest = made.manifest
    others = len(manifest.files) - 1
    print(spelled(str(made.path)))
    print(
        f"{manifest.rows['messages']} messages and {others} other file{'' if others == 1 else 's'}, "
        f"{max(made.size_bytes / 1e6, 0.1):.3g} MB, checked. "
        "Keys kept by `fermix setup` are not in it. `fermix restore FILE` brings it back."
    )
