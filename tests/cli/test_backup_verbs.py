"""`fermix backup` and `fermix restore` as they are typed, over a real home."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from fermix.cli import progress
from fermix.cli.main import main
from fermix.home import Home, hold_lock
from tests.store.homes import make_home, messages_of, say


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "fermix")


async def test_a_backup_is_made_and_brought_back(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    await make_home(home.root, "one")
    out = str(tmp_path / "out.zip")

    assert main(["backup", out]) == 0
    assert capsys.readouterr().out.splitlines()[0] == out
    await say(home, "two")
    assert main(["restore", out]) == 0
    assert "restored 1 messages" in capsys.readouterr().out
    assert await messages_of(home) == ["one"]
    assert main(["restore", "--undo"]) == 0
    assert await messages_of(home) == ["one", "two"]


async def test_who_asks_for_json_gets_it(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    await make_home(home.root, "one", others={})
    out = str(tmp_path / "out.zip")
    answers: list[dict[str, object]] = []
    for argv in (["backup", out], ["backup", out], ["restore", out], ["restore", "--undo"], ["restore", "/dev/null"]):
        main([*argv, "--json"])
        answers.append(json.loads(capsys.readouterr().out))
    made, taken, restored, undone, foreign = answers

    assert (made["status"], made["file"], made["files"]) == ("ok", out, ["memory.db"])
    assert made["rows"] == restored["rows"]
    assert (taken["status"], foreign["status"]) == ("error", "error")
    assert [Path(str(answer["kept"])).parent for answer in (restored, undone)] == [home.replaced] * 2


async def test_without_a_name_the_backup_lies_in_the_current_folder(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    await make_home(home.root, "one")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)

    assert main(["backup"]) == 0
    assert [path.name.startswith("fermix-") for path in here.iterdir()] == [True]


async def test_a_restore_waits_for_no_daemon_and_says_how_to_stop_it(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    await make_home(home.root, "one")
    main(["backup", str(tmp_path / "out.zip")])
    with hold_lock(home):
        assert main(["restore", str(tmp_path / "out.zip")]) == 1
        assert "`fermix stop`" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["restore"], ["restore", "--undo", "a.zip"]])
def test_a_restore_is_of_a_file_or_an_undo(argv: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(argv) == 2
    assert "name the backup, or say --undo" in capsys.readouterr().err


async def test_no_backup_is_made_of_half_a_restore(home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    await make_home(home.root, "one")
    home.restoring.write_text("{}", encoding="utf-8")

    assert main(["backup", str(tmp_path / "out.zip")]) == 1
    assert "a restore was cut off: run `fermix start`" in capsys.readouterr().err
    assert not (tmp_path / "out.zip").exists()


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_takes_long_is_told_on_one_line_and_only_there(monkeypatch: pytest.MonkeyPatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    quick = progress.PatientLine()
    quick("copying", 0.5)
    quick.end()
    assert screen.getvalue() == ""

    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    slow = progress.PatientLine()
    for share in (0.5, 0.501, 1.0):
        slow("copying", share)
    slow("checking", 0.0)
    slow.end()

    shown = [line.strip() for line in screen.getvalue().split("\r") if line.strip()]
    assert shown == ["copying: 50%", "copying: 100%", "checking: 0%"]
