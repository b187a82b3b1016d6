from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest

from fermix import __version__
from fermix.cli import catalog, output
from fermix.cli import main as package_main
from fermix.cli.catalog import VERBS, Verb
from fermix.cli.main import INTERRUPTED, main, usage
from tests.flows.product import REPO

MAIN = importlib.import_module("fermix.cli.main")  # the package shows its function under the same name


@pytest.mark.parametrize("argv", [["--version"], ["-V"], ["version"]])
def test_the_version_is_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    assert capsys.readouterr().out == f"fermix {__version__}\n"


@pytest.mark.parametrize("argv", [["help"], ["--help"], ["-h"]])
def test_help_names_every_verb_that_is_for_people(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    told = capsys.readouterr().out

    assert told == usage() + "\n"
    assert [verb.name for verb in VERBS if f"\n  {verb.name} " in told] == [
        verb.name for verb in VERBS if not verb.hidden
    ]


@pytest.mark.parametrize(("name", "kind"), [("frobnicate", "verb"), ("--frobnicate", "option"), ("", "verb")])
def test_an_unknown_verb_is_named_with_the_usage_and_exit_2(
    name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name]) == 2
    told = capsys.readouterr()

    assert told.out == ""
    assert told.err.startswith(f"fermix: unknown {kind} {name!r}\n")
    assert "usage: fermix" in told.err


def test_a_verb_gets_what_stands_behind_it_and_gives_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []

    def take(argv: list[str]) -> int:
        seen.append(argv)
        return 7

    monkeypatch.setattr(MAIN, "VERBS", (Verb("tui", "", take), Verb("run", "", take)))

    assert [main([]), main(["tui", "a", "--b"]), main(["--daemon", "-v"])] == [7, 7, 7]
    assert seen == [[], ["a", "--b"], ["-v"]]


def test_ctrl_c_is_130_without_a_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(MAIN, "VERBS", (Verb("ask", "", interrupt),))

    assert main(["ask"]) == INTERRUPTED == 130
    assert capsys.readouterr().err == ""


def test_a_reader_that_leaves_early_ends_the_program_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "fermix", "help"], stdout=writing, stderr=subprocess.PIPE, cwd=REPO, check=False
        )
    finally:
        os.close(writing)

    assert done.stderr == b""
    assert done.returncode in (0, 1)


@pytest.mark.slow
def test_every_verb_of_the_catalog_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        if verb.name.startswith("_"):
            continue
        try:
            code = verb.run(["--help"])
        except SystemExit as end:
            code = end.code
        assert code == 0
        assert "usage: fermix" in capsys.readouterr().out


def test_names_of_verbs_are_unique() -> None:
    names = [verb.name for verb in catalog.VERBS]

    assert len(names) == len(set(names))
    assert package_main is main


def test_output_keeps_answers_and_problems_apart(capsys: pytest.CaptureFixture[str]) -> None:
    codes = [output.wrong_use("ask", "it is empty"), output.failed("ask", "it broke"), output.not_running("ask")]
    told = capsys.readouterr()

    assert codes == [2, 1, 3]
    assert told.out == ""
    assert told.err.splitlines() == [
        "fermix ask: it is empty",
        "Try `fermix ask --help`.",
        "fermix ask: it broke",
        "fermix ask: no daemon runs; start one with `fermix start` (or open `fermix`)",
    ]


def test_who_stops_what_does_not_run_is_not_told_to_start_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop"]) == 3
    assert capsys.readouterr().err == "fermix stop: no daemon runs\n"


@pytest.mark.parametrize("option", ["-hello", "--hello"])
def test_a_question_that_starts_with_a_dash_is_told_how_to_be_asked(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["ask", option])
    told = capsys.readouterr().err

    assert caught.value.code == 2
    assert "put `--` before a question that starts with a dash" in told
    assert "explicit argument" not in told


def test_json_is_plain_unicode(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"text": "größe 你好"})

    assert capsys.readouterr().out == '{\n  "text": "größe 你好"\n}\n'


@pytest.mark.parametrize(
    "text", ["\x9b31m", "\u202egnp", "\u200b", "\U000e0041", "\ud800", "\x7f", "\x1b[2J", "\u2028"]
)
def test_json_holds_nothing_that_a_terminal_acts_on_or_hides(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """INJ-07: what strangers call themselves and what models write stands in it."""
    output.print_json({"name": text})
    printed = capsys.readouterr().out

    assert printed.replace("\n", "").isprintable()
    assert json.loads(printed) == {"name": text}
