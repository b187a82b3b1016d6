"""Bring a backup back: verified before anything is touched, exchanged as a whole, and what was there is kept.

The command line calls it and holds the home's lock: no daemon runs.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fermix.errors import NeedsOperator
from fermix.home import PRIVATE_DIR, Home
from fermix.store import archive, schema
from fermix.store.exchange import exchange, finish, last_kept
from fermix.store.faults import Damaged
from fermix.store.snapshot import Contents, Report, check_copy

STAGE = ".restore-"


@dataclass(frozen=True, slots=True)
class Restored:
    """`kept` is the folder with what was there before."""

    kept: Path
    manifest: archive.Manifest


def restore_backup(home: Home, path: Path, now: datetime, report: Report) -> Restored:
    """Put what a backup holds in the place of what the home has.

    Raises: NeedsOperator, and nothing was changed, when the file is no backup, damaged or of a newer Fermix, or when
    there is no room to unpack it.
    """
    finish(home)
    manifest = archive.read_manifest(path, home)
    if manifest.schema_version > schema.LATEST:
        raise archive.newer(path, manifest)
    try:
        with _stage(home) as folder:
            _check_room(folder, manifest)
            archive.unpack(path, manifest, folder, report)
            _check_database(path, folder / home.database.name, manifest, report)
            return Restored(exchange(home, folder, now), manifest)
    except OSError as error:
        raise NeedsOperator(
            f"cannot unpack {path} into {home.root}: {error.strerror or error}; nothing was changed",
            advice="make it writable, free some space there and restore again",
        ) from error


def undo_restore(home: Home, now: datetime) -> Path:
    """Bring back what the last restore put aside, and keep what is there now. Raises: NeedsOperator."""
    finish(home)
    kept = last_kept(home)
    if kept is None:
        raise NeedsOperator("no restore is there to undo", advice="name a backup: `fermix restore FILE`")
    return exchange(home, kept, now)


@contextmanager
def _stage(home: Home) -> Generator[Path]:
    """Make a folder in the home, so that what it holds can be renamed into place; remove what is left of it, and what
    a restore left that was killed.
    """
    for left in home.root.glob(f"{STAGE}*"):
        shutil.rmtree(left, ignore_errors=True)
    folder = home.root / f"{STAGE}{secrets.token_hex(8)}"
    folder.mkdir(mode=PRIVATE_DIR)
    try:
        yield folder
    finally:
        if not home.restoring.exists():  # a begun exchange still needs it, and the next start finishes that
            shutil.rmtree(folder, ignore_errors=True)


def _check_room(folder: Path, manifest: archive.Manifest) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < manifest.unpacked_bytes:
        missing_mb = (manifest.unpacked_bytes - free_bytes) / 1e6
        raise NeedsOperator(
            f"{missing_mb:.0f} MB are missing in {folder.parent} to unpack the backup; nothing was changed",
            advice="free some space there and restore again",
        )


def _check_database(path: Path, database: Path, manifest: archive.Manifest, report: Report) -> None:
    try:
        found = check_copy(database, path, report)
    except Damaged as error:
        raise archive.damaged(path, error.finding) from error
    except NeedsOperator as error:
        raise archive.damaged(path, "its database is not as Fermix makes it") from error
    if found != Contents(manifest.schema_version, manifest.rows):
        raise archive.damaged(path, "its database does not hold the rows that it should")
