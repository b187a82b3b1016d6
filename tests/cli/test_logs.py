from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fermix.cli.verbs import logs
from fermix.home import Home


@pytest.fixture
def log(tmp_path: Path) -> Path:
    home = Home(tmp_path / "fermix")
    home.prepare()
    return home.log_file


@pytest.mark.parametrize(
    ("argv", "shown"),
    [([], 100), (["-n", "3"], 3), (["-n", "0"], 0), (["--lines", "1000"], 150)],
)
def test_the_last_lines_are_shown(log: Path, argv: list[str], shown: int, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [f"line {number}\n" for number in range(150)]
    log.write_text("".join(lines), encoding="utf-8")

    assert logs.main(argv) == 0
    assert capsys.readouterr().out == "".join(lines[150 - shown :])


def test_broken_bytes_are_shown_as_such(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write_bytes(b"caf\xc3 end\n")

    assert logs.main([]) == 0
    assert capsys.readouterr().out == "caf\ufffd end\n"


def test_the_file_may_be_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.log").write_text("elsewhere\n", encoding="utf-8")
    monkeypatch.setenv("FERMIX_LOG_FILE", str(tmp_path / "other.log"))

    assert logs.main([]) == 0
    assert capsys.readouterr().out == "elsewhere\n"


def test_a_relative_place_is_refused_as_the_daemon_refuses_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A relative one would name another file in every folder."""
    monkeypatch.setenv("FERMIX_LOG_FILE", "other.log")

    assert logs.main([]) == 1
    assert "FERMIX_LOG_FILE: must be an absolute path" in capsys.readouterr().err


def test_what_cannot_be_shown_is_said_in_one_sentence(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes = [logs.main([]), logs.main(["-n", "-1"])]
    log.mkdir()
    codes.append(logs.main([]))
    told = capsys.readouterr()

    assert codes == [1, 2, 1]
    assert told.out == ""
    assert told.err.splitlines() == [
        f"fermix logs: there is no log yet at {log}; start the daemon with `fermix start`",
        "fermix logs: -n takes a number of lines, 0 or more",
        "Try `fermix logs --help`.",
        f"fermix logs: cannot read {log}: Is a directory",
    ]


class Rounds:
    """What happens to the log while the follower sleeps; the last round is the owner's Ctrl-C."""

    def __init__(self, *rounds: Callable[[], object]) -> None:
        self._rounds = list(rounds)

    def __call__(self, _seconds: float) -> None:
        if not self._rounds:
            raise KeyboardInterrupt
        self._rounds.pop(0)()


def test_following_goes_over_to_the_new_file_and_loses_no_line(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines that were written just before the rotation stand in the old file only."""

    def append(text: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(text)

    def rotate() -> None:
        append("last of the old\n")
        log.rename(log.with_name("fermix.log.1"))
        append("first of the new\n")

    def vanish() -> None:
        log.rename(log.with_name("fermix.log.2"))

    append("before\n")
    rounds = Rounds(lambda: append("while\n"), rotate, lambda: append("later\n"), vanish, lambda: append("again\n"))
    monkeypatch.setattr(time, "sleep", rounds)
    with pytest.raises(KeyboardInterrupt):
        logs.main(["-f"])

    told = capsys.readouterr().out.splitlines()
    assert told == ["before", "while", "last of the old", "first of the new", "later", "again"]


def test_a_reader_that_leaves_ends_it(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    log.write_text("line\n", encoding="utf-8")
    with os.fdopen(os.dup(writing), "w", encoding="utf-8") as closed:
        monkeypatch.setattr("sys.stdout", closed)
        with pytest.raises(BrokenPipeError):
            logs.main([])
        os.dup2(os.open(os.devnull, os.O_WRONLY), closed.fileno())
    os.close(writing)
