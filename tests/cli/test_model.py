"""`fermix model` as a person and as the daemon use it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from fermix.agent.providers.local_files import LocalFiles
from fermix.cli.main import main
from tests.fakes.local_model import real_model

FILE = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"


@pytest.fixture
def models() -> Path:
    return Path(os.environ["FERMIX_HOME"]) / "models"


def test_status_of_an_empty_home_gives_sizes_and_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """The size is shown before anything is fetched."""
    assert main(["model", "status"]) == 0

    shown = capsys.readouterr().out
    assert "`fermix model fetch` brings" in shown
    assert f"{FILE}  491 MB" in shown


def test_status_as_json(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "status", "--json"]) == 0

    status = json.loads(capsys.readouterr().out)
    assert status["folder"] == str(models)
    assert {"file": FILE, "size_bytes": 491_400_064} in status["missing"]


def test_status_counts_what_an_earlier_fetch_left(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broken fetch is not lost, and says so."""
    models.mkdir(parents=True)
    with (models / f"{FILE}.part").open("wb") as part:
        part.truncate(200_000_000)

    assert main(["model", "status"]) == 0
    assert "200 MB of it are here" in capsys.readouterr().out


def test_wrong_file_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback; exit code 1; nothing active."""
    wrong = tmp_path / "wrong.gguf"
    wrong.write_bytes(b"GGUF")

    assert main(["model", "fetch", "--from", str(wrong)]) == 1

    shown = capsys.readouterr()
    assert "491 MB" in shown.out
    assert shown.err.startswith(f"fermix model: {wrong} is not {FILE} (491,400,064 bytes)")


@pytest.fixture
def fetched(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything of the local model is here."""
    monkeypatch.setattr(LocalFiles, "missing", lambda _: ())


@pytest.mark.usefixtures("fetched")
def test_fetch_for_programs_with_nothing_to_do_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "fetch", "--json"]) == 0

    progress = json.loads(capsys.readouterr().out)
    assert (progress["name"], progress["state"], progress["done_bytes"]) == (FILE, "done", 491_400_064)


@pytest.mark.usefixtures("fetched")
@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_absent_file_is_refused_even_when_nothing_is_missing(
    tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["model", "fetch", "--from", str(tmp_path / "nope"), *flags]) == 1

    shown = capsys.readouterr()
    assert f"{tmp_path / 'nope'} is no file" in (shown.out if flags else shown.err)
    assert "is ready" not in shown.out


def test_failure_for_programs_is_a_line_of_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The daemon reads nothing else."""
    assert main(["model", "fetch", "--json", "--from", str(tmp_path / "absent")]) == 1

    (line,) = capsys.readouterr().out.splitlines()
    progress = json.loads(line)
    assert (progress["name"], progress["state"], progress["total_bytes"]) == (FILE, "failed", 491_400_064)
    assert "absent" in progress["error"]


def test_without_an_action_the_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model"]) == 2
    assert "status" in capsys.readouterr().err


def test_engine_is_not_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """The hidden verb says so instead of serving without a key."""
    with pytest.raises(SystemExit) as ended:
        main(["_engine", "--model", "m", "--threads", "1", "--context", "1", "--parent", "1"])

    assert ended.value.code == 2
    assert "the daemon starts this" in capsys.readouterr().err


@pytest.mark.model
@pytest.mark.slow
def test_brought_model_becomes_ready(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--from with the real file: verified, active, and ready on the second look."""
    brought = real_model()

    assert main(["model", "fetch", "--from", str(brought)]) == 0

    assert (models / FILE).stat().st_size == 491_400_064
    assert ": done" in capsys.readouterr().out
    assert main(["model", "fetch"]) == 0
    assert "is ready" in capsys.readouterr().out
