"""The backup file: a zip that any program opens, with a manifest that says what must be in it.

`backup` writes one and reads it back, `restore` unpacks one. Never touched here: the live database, which only SQLite
opens; what is packed is a copy that nobody else holds. Names in a file of others lead nowhere but into the folder it
is unpacked to.
"""

from __future__ import annotations

import errno
import hashlib
import os
import zipfile
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from fermix.errors import NeedsOperator
from fermix.home import PRIVATE_DIR, PRIVATE_FILE, Home
from fermix.store.parts import is_member
from fermix.store.snapshot import Report

MANIFEST = "manifest.json"
FORMAT_VERSION = 1
LEVEL = 1  # of zlib: a database shrinks to a third at 60 MB/s, and to little less at a tenth of that
PIECE_BYTES = 1_048_576
MOST_MANIFEST_BYTES = 8 * 1_048_576
ZIP_BEGINS = b"PK\x03\x04"
DATABASE_BEGINS = b"SQLite format 3\0"
BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, KeyError, ValueError)
"""What the zip reader raises over bytes that are not as they were written, or that another program packed."""


class Member(BaseModel):
    """One file of a backup."""

    model_config = ConfigDict(frozen=True, strict=True)

    size_bytes: NonNegativeInt
    sha256: str


class Manifest(BaseModel):
    """What a backup says of itself, e.g. {"format": "fermix-backup", "format_version": 1, "schema_version": 2, …}."""

    model_config = ConfigDict(frozen=True, strict=True)

    format: Literal["fermix-backup"]
    format_version: int
    fermix: str
    created_at: str
    schema_version: int
    rows: dict[str, int]
    files: dict[str, Member]

    @property
    def unpacked_bytes(self) -> int:
        return sum(member.size_bytes for member in self.files.values())


def pack(target: IO[bytes], files: Sequence[tuple[str, Path]], about: Mapping[str, object], report: Report) -> Manifest:
    """Write files that nobody else holds under their names, then the manifest. Raises: OSError."""
    progress = _Progress("packing", sum(path.stat().st_size for _, path in files), report)
    packed: dict[str, Member] = {}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for name, path in files:
            with existing_file(path) as source, archive.open(_info(name), "w", force_zip64=True) as into:
                packed[name] = _pour(source, into, progress)
        manifest = Manifest.model_validate({**about, "format": "fermix-backup", "files": packed})
        archive.writestr(_info(MANIFEST), manifest.model_dump_json(indent=2))
    return manifest


def read_manifest(path: Path, home: Home) -> Manifest:
    """Say what a file is. Raises: NeedsOperator when it is no backup, damaged, or of a later format."""
    try:
        if path.is_fifo() or path.is_char_device():  # reading one may wait for ever
            raise _foreign(path, b"")
        with path.open("rb") as file:
            begins = file.read(len(DATABASE_BEGINS))
        if not begins.startswith(ZIP_BEGINS):
            raise _foreign(path, begins)
        with _opened(path) as archive:
            if MANIFEST not in archive.namelist():
                raise _foreign(path, begins)
            with archive.open(MANIFEST) as stored:
                text = stored.read(MOST_MANIFEST_BYTES)
    except OSError as error:
        raise NeedsOperator(f"cannot read {path}: {error.strerror or error}", advice="name another file") from error
    return _judged(path, text, home)


def unpack(path: Path, manifest: Manifest, folder: Path, report: Report) -> None:
    """Write what the manifest names into an empty folder, each file private and safe on disk.

    Raises: NeedsOperator when something is missing or not as it was written, OSError when there is no room.
    """
    progress = _Progress("unpacking", manifest.unpacked_bytes, report)
    with _opened(path) as archive:
        for name, member in manifest.files.items():
            with archive.open(name) as source, _new_file(folder, name) as into:
                if _pour(source, into, progress, most_bytes=member.size_bytes) != member:
                    raise damaged(path, f"{name} is not what it was")
                into.flush()
                os.fsync(into.fileno())


def reads_back(path: Path, manifest: Manifest, report: Report) -> bool:
    """Read every file of a backup and tell whether each is what the manifest says. Raises: OSError."""
    progress = _Progress("reading back", manifest.unpacked_bytes, report)
    try:
        with _opened(path) as archive:
            for name, member in manifest.files.items():
                with archive.open(name) as source:
                    if _pour(source, None, progress, most_bytes=member.size_bytes) != member:
                        return False
    except NeedsOperator:
        return False
    return True


@contextmanager
def _opened(path: Path) -> Generator[zipfile.ZipFile]:
    """Open a backup. Raises: NeedsOperator when its bytes, read by the caller, are not those of a backup; OSError."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except BROKEN as error:
        raise damaged(path, str(error)) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # a place before its beginning, where a damaged directory leads
            raise
        raise damaged(path, "its directory leads nowhere") from error


class _Progress:
    """Counts bytes and tells the share of the whole."""

    def __init__(self, phase: str, total_bytes: int, report: Report) -> None:
        self._phase = phase
        self._total_bytes = max(total_bytes, 1)
        self._report = report
        self._done_bytes = 0

    def add(self, count: int) -> None:
        self._done_bytes += count
        self._report(self._phase, min(self._done_bytes / self._total_bytes, 1.0))


def _pour(source: IO[bytes], into: IO[bytes] | None, progress: _Progress, most_bytes: int | None = None) -> Member:
    """Copy to the end, or to one piece past `most_bytes`, which is then seen by its size."""
    digest, size_bytes = hashlib.sha256(), 0
    while (most_bytes is None or size_bytes <= most_bytes) and (piece := source.read(PIECE_BYTES)):
        digest.update(piece)
        size_bytes += len(piece)
        if into is not None:
            into.write(piece)
        progress.add(len(piece))
    return Member(size_bytes=size_bytes, sha256=digest.hexdigest())


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, datetime.now().astimezone().timetuple()[:6])
    info.external_attr = PRIVATE_FILE << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def existing_file(path: Path) -> IO[bytes]:
    """Open a file for reading that is no link. Raises: OSError."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def _new_file(folder: Path, name: str) -> IO[bytes]:
    target = folder / name
    for parent in reversed(Path(name).parents):
        (folder / parent).mkdir(mode=PRIVATE_DIR, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(target, flags, PRIVATE_FILE), "wb")


def _judged(path: Path, text: bytes, home: Home) -> Manifest:
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise damaged(path, "its manifest cannot be read") from error
    if manifest.format_version > FORMAT_VERSION:
        raise newer(path, manifest)
    wrong = next((name for name in manifest.files if not is_member(home, name)), None)
    if wrong is not None or home.database.name not in manifest.files:
        raise damaged(path, f"it holds {wrong!r}" if wrong else "it holds no database")
    return manifest


def newer(path: Path, manifest: Manifest) -> NeedsOperator:
    """Say that a later Fermix made this backup."""
    return NeedsOperator(
        f"{path} was made by a newer Fermix ({manifest.fermix}); nothing was changed",
        advice="update Fermix, then restore it again",
    )


def _foreign(path: Path, begins: bytes) -> NeedsOperator:
    what = "a bare database" if begins == DATABASE_BEGINS else "no backup of Fermix"
    return NeedsOperator(f"{path} is {what}; nothing was changed", advice="name a file that `fermix backup` made")


def damaged(path: Path, finding: str) -> NeedsOperator:
    """Say that a backup is not as it was written."""
    return NeedsOperator(f"{path} is damaged ({finding}); nothing was changed", advice="use another backup")
