"""`fermix restore`: bring a backup back, or take that back again. No daemon may run; what was there before is kept."""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from fermix.cli import output
from fermix.cli.progress import PatientLine
from fermix.errors import FermixError
from fermix.home import Home, hold_lock
from fermix.visible import spelled

if TYPE_CHECKING:
    from fermix.store.restore import Restored


def main(argv: list[str]) -> int:
    options = _parser().parse_args(argv)
    if options.undo == (options.file is not None):
        return output.wrong_use("restore", "name the backup, or say --undo")
    try:
        home = Home.locate(os.environ)
        home.prepare()
        with hold_lock(home):
            return _undo(home, as_json=options.json) if options.undo else _restore(home, options)
    except FermixError as error:
        return output.failed("restore", str(error), as_json=options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fermix restore",
        description="Bring a backup back: the database, config.toml, the prompt files and the grants become what they "
        "were then. The file is checked first; what is there now is kept aside and comes back with --undo. "
        "Stop the daemon before. Keys that `fermix setup` keeps stay as they are.",
    )
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a file that `fermix backup` made")
    parser.add_argument("--undo", action="store_true", help="bring back what the last restore put aside")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _restore(home: Home, options: argparse.Namespace) -> int:
    from fermix.store.restore import restore_backup

    line = PatientLine()
    try:
        restored = restore_backup(home, options.file.absolute(), datetime.now().astimezone(), line)
    finally:
        line.end()
    if options.json:
        output.print_json(_as_json(restored))
    else:
        manifest = restored.manifest
        print(f"restored {manifest.rows['messages']} messages as of {manifest.created_at}, checked")
        _tell_kept(restored.kept)
    return 0


def _undo(home: Home, *, as_json: bool) -> int:
    from fermix.store.restore import undo_restore

    kept = undo_restore(home, datetime.now().astimezone())
    if as_json:
        output.print_json({"status": "ok", "kept": str(kept)})
    else:
        print("the state before the last restore is back")
        _tell_kept(kept)
    return 0


def _as_json(restored: Restored) -> dict[str, object]:
    manifest = restored.manifest
    told = {"created_at": manifest.created_at, "schema_version": manifest.schema_version, "rows": manifest.rows}
    return {"status": "ok", "kept": str(restored.kept), **told, "files": sorted(manifest.files)}


def _tell_kept(kept: Path) -> None:
    print(
        f"What was there before is in {spelled(str(kept))}; `fermix restore --undo` brings it back. "
        "Remove that folder when you no longer want it. `fermix start` starts the daemon."
    )
