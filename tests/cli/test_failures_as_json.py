"""Who asked for JSON gets JSON, also when nothing works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fermix.cli.main import main
from tests.fakes.peer import answering, error


@pytest.mark.parametrize("verb", [["status"], ["channels"], ["ask", "hi"]], ids=lambda verb: verb[0])
def test_a_daemon_that_cannot_be_talked_to_is_told_as_an_object(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERMIX_HOME", str(tmp_path))
    with answering(tmp_path / "daemon.sock", lambda request: error(request, -32603, "out of order")):
        assert main([*verb, "--json"]) == 1

    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["error"]) == ("error", "failed")
    assert "out of order" in told["message"]


def test_a_home_that_cannot_be_made_is_told_as_an_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERMIX_HOME", "/dev/null/fermix")

    assert main(["model", "status", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "failed"
