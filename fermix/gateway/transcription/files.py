"""What listening on this machine needs: the files of the model, and the engine that runs it.

The engine is an installed `faster-whisper` (the extra `voice`) or, where that is absent, pinned wheels unpacked under
the home. Nothing is fetched unless the owner asks, with `fermix setup` or `fermix model fetch --voice`. Read by the
daemon at each recording, so that what was fetched meanwhile counts at once.
"""

from __future__ import annotations

import importlib
import importlib.util
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fermix.agent.providers.bring import Ways, bring, unpack
from fermix.errors import NeedsOperator
from fermix.fetch import Artifact, PackagedPart, Report, load_downloads, part_path
from fermix.home import PRIVATE_DIR
from fermix.native.program import FROZEN

MODEL_NAME = "whisper-tiny.en"
ENGINE_VERSION = "1.2.1"
ENGINE_PYTHON = (3, 11)  # the wheels that are pinned are made for this one
INSTEAD = (
    "bring the files and run `fermix model fetch --voice --from FILE`, or run `fermix setup` to give voice notes to "
    "OpenAI, Deepgram or xAI"
)


@dataclass(frozen=True, slots=True)
class VoiceFiles:
    """What belongs to listening here. `engine` are the wheels that make one, none where one is installed;
    `unsupported` says why there are none for this machine, "" where there are.
    """

    models: Path
    model: tuple[Artifact, ...]
    engine: tuple[Artifact, ...]
    unsupported: str = ""

    @classmethod
    def of(cls, models: Path) -> VoiceFiles:
        """Look at this machine; `models` is the folder of everything that is fetched."""
        bundles = load_downloads().bundles
        importlib.invalidate_caches()  # it may have been installed while the daemon runs
        if importlib.util.find_spec("faster_whisper") is not None:
            return cls(models, bundles["voice-model"], ())
        place = f"{sys.platform}-{platform.machine().lower()}"
        made_for_it = bundles.get(f"voice-engine-{place}", ()) if sys.version_info[:2] == ENGINE_PYTHON else ()
        engine = (*bundles["voice-engine"], *made_for_it) if made_for_it else ()
        return cls(models, bundles["voice-model"], engine, "" if engine else _no_engine(place))

    @property
    def folder(self) -> Path:
        """Where the model lies."""
        return self.models / MODEL_NAME

    @property
    def engine_folder(self) -> Path | None:
        """Where the unpacked engine lies or would lie; None when one is installed."""
        return self.models / f"voice-engine-{ENGINE_VERSION}" if self.engine else None

    @property
    def name(self) -> str:
        return MODEL_NAME

    @property
    def weights(self) -> Artifact:
        """The file that makes most of it."""
        return max(self.model, key=lambda artifact: artifact.size_bytes)

    @property
    def ready(self) -> bool:
        """Whether something can listen here now."""
        return not self.unsupported and not self.missing()

    def missing(self) -> tuple[Artifact, ...]:
        """What still has to be fetched; wheels count until they are unpacked."""
        model = tuple(artifact for artifact in self.model if not (self.folder / artifact.file).exists())
        return model if self.engine_folder is None or self.engine_folder.exists() else (*model, *self.engine)

    def done_bytes(self) -> int:
        """How much of what is missing lies here already."""
        places = ((self.folder / artifact.file, part_path(artifact, self.folder)) for artifact in self.missing())
        return sum(place.stat().st_size for pair in places for place in pair if place.exists())

    def fetch(self, brought: Sequence[Path], mirror: str | None, report: Report) -> None:
        """Fetch what is missing, from the same places as the model that chats.

        Raises: NeedsOperator with what to do instead, AlreadyFetching.
        """
        if self.unsupported:
            raise NeedsOperator(self.unsupported, advice="run `fermix setup` to use OpenAI, Deepgram or xAI")
        self.folder.mkdir(mode=PRIVATE_DIR, exist_ok=True)
        for _ in bring(self.missing(), self.folder, self._packages(), Ways(brought, mirror, report, INSTEAD)):
            pass
        if self.engine_folder is not None and not self.engine_folder.exists():
            unpack([self.folder / wheel.file for wheel in self.engine], self.engine_folder)

    def _packages(self) -> dict[str, tuple[PackagedPart, ...]]:
        """Where the package index has each file; the frozen program has no pip to ask it with."""
        if FROZEN:
            return {}
        return {**load_downloads().packages, **{wheel.file: (_whole(wheel),) for wheel in self.engine}}


def _whole(wheel: Artifact) -> PackagedPart:
    name, version = wheel.file.split("-")[:2]
    return PackagedPart(name, version, "", wheel.size_bytes)


def _no_engine(place: str) -> str:
    if FROZEN:
        return f"this build has nothing that listens on {place}; an install from source with the extra `voice` may"
    python = ".".join(map(str, sys.version_info[:2]))
    return (
        f"nothing ready-made listens on {place} with Python {python}; installing Fermix with the extra `voice` may help"
    )
