"""The two files of the embedded model: its weights and its engine. Where they lie, what is missing, how they come.

Read by `embedded.py` in the daemon; fetched by the verb `fermix model fetch`, which the daemon also runs as a child.
The engine is an installed `xllamacpp` or, in the frozen program, the pinned wheel unpacked under the home.
"""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fermix.agent.providers.bring import Ways, bring, unpack
from fermix.errors import NeedsOperator
from fermix.fetch import Artifact, PackagedPart, Report, load_downloads, part_path
from fermix.native.program import FROZEN

MODEL_NAME = "qwen2.5-coder-0.5b"
INSTEAD = (
    "bring the file and run `fermix model fetch --from FILE`, or run `fermix setup` to use a provider's key or Ollama"
)


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
    def name(self) -> str:
        return MODEL_NAME

    @property
    def weights(self) -> Artifact:
        """The file that makes most of it."""
        return self.model

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
        ways = Ways(brought, mirror, report, INSTEAD)
        for artifact, path in bring(self.missing(), self.folder, {self.model.file: self.parts}, ways):
            if artifact is self.engine:
                folder = self.engine_folder
                assert folder is not None
                unpack([path], folder)
