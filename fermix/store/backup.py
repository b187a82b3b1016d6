"""Make a backup: one private file with a checked copy of the database and what else makes an install.

The command line calls it, beside a running daemon or without one. The file appears whole under its name or not at all.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from fermix import __version__
from fermix.errors import NeedsOperator
from fermix.home import PRIVATE_DIR, PRIVATE_FILE, Home, sync_folder
from fermix.store import archive, parts
from fermix.store.snapshot import Report, copy_database


@dataclass(frozen=True, slots=True)
class Made:
    """A backup that is on disk."""

    path: Path
    size_bytes: int
    manifest: archive.Manifest


def make_backup(home: Home, wanted: Path, now: datetime, report: Report, *, replace: bool = False) -> Made:
    """Write a backup to `wanted`, or into it when that is a folder, and read it back. `now` has a zone.

    Raises: NeedsOperator when the file exists and may not be replaced or is no backup, when there is no room for it, or
    when the database is damaged; Unavailable when another program keeps it locked.
    """
    path = wanted / f"fermix-{now:%Y%m%d-%H%M%S}.backup.zip" if wanted.is_dir() else wanted
    if path.exists():
        _check_taken(home, path, replace=replace)
    try:
        with _workshop(path.parent) as folder:
            files = list(_set_aside(home, folder))
            copy = folder / "copy"
            contents = copy_database(home.database, copy, report)
            about: dict[str, object] = {
                "format_version": archive.FORMAT_VERSION,
                "fermix": __version__,
                "created_at": now.isoformat(timespec="seconds"),
                "schema_version": contents.schema,
                "rows": contents.rows,
            }
            made = folder / "made"
            manifest = _pack([(home.database.name, copy), *files], made, about, report)
            if not archive.reads_back(made, manifest, report):
                raise _unreadable(path)
            _publish(made, path, replace=replace)
    except OSError as error:
        raise NeedsOperator(
            f"cannot write {path}: {error.strerror or error}",
            advice="name a file in a folder that you can write and that has room for two copies of the database",
        ) from error
    return Made(path, path.stat().st_size, manifest)


def _check_taken(home: Home, path: Path, *, replace: bool) -> None:
    """Let only an earlier backup be replaced: a slip in the name must not cost another file."""
    if not replace:
        raise _taken(path)
    try:
        archive.read_manifest(path, home)
    except NeedsOperator as error:
        raise NeedsOperator(f"{path} exists and is no backup of Fermix", advice="name another file") from error


@contextmanager
def _workshop(folder: Path) -> Generator[Path]:
    """Make a private folder beside the target, gone again on every way out."""
    made = folder / f".fermix-{secrets.token_hex(8)}"
    made.mkdir(mode=PRIVATE_DIR)
    try:
        yield made
    finally:
        for left in made.iterdir():
            left.unlink()
        made.rmdir()


def _set_aside(home: Home, folder: Path) -> Generator[tuple[str, Path]]:
    """Copy what stands beside the database, before that is copied. A file made from the database may then be older than
    it, which the next start mends, but never newer: it would come back as a text that somebody wrote by hand.
    """
    for number, path in enumerate(parts.members(home)):
        aside = folder / str(number)
        try:
            with archive.existing_file(path) as source, aside.open("xb") as into:
                shutil.copyfileobj(source, into)
        except FileNotFoundError:  # it vanished meanwhile
            continue
        yield path.relative_to(home.root).as_posix(), aside


def _pack(files: Sequence[tuple[str, Path]], made: Path, about: dict[str, object], report: Report) -> archive.Manifest:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(made, flags, PRIVATE_FILE), "w+b") as target:
        manifest = archive.pack(target, files, about, report)
        target.flush()
        os.fsync(target.fileno())
    return manifest


def _publish(made: Path, path: Path, *, replace: bool) -> None:
    if replace:
        made.replace(path)
    else:
        _publish_new(made, path)
    sync_folder(path.parent)


def _publish_new(made: Path, path: Path) -> None:
    """Give the file its name unless that is taken, also by somebody who came first a moment ago."""
    try:
        path.hardlink_to(made)
    except FileExistsError as error:
        raise _taken(path) from error
    except OSError:  # a file system without links, such as that of most memory sticks
        if path.exists():
            raise _taken(path) from None
        made.rename(path)


def _unreadable(path: Path) -> NeedsOperator:
    return NeedsOperator(
        f"what was written for {path} reads back as something else; no backup was made",
        advice="name a file on another disk: this one may be failing",
    )


def _taken(path: Path) -> NeedsOperator:
    return NeedsOperator(f"{path} exists", advice="name another file, or replace it with --force")
