"""Which arguments git is given. Pure, but for the last test, which asks the real git."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermix.agent.tools.git.arguments import DENIED, READING, WRITING, Place, check
from fermix.errors import Refused
from tests.agent.tools.conftest import Toolbox
from tests.fakes.repository import Repository, Trap

HERE = Place(Path("/w/project/src"), Path("/w/project"))
COMMANDS = (*READING, *WRITING)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", sorted(DENIED))
def test_a_denied_option_is_refused_whole_and_by_every_beginning(command: str, option: str) -> None:
    """SBX-09, SBX-10: git takes `--upload-pac=cmd` for `--upload-pack=cmd`."""
    for end in range(1, len(option) + 1):
        if option[:end] == "text":  # an option of its own
            continue
        for argument in (f"--{option[:end]}", f"--{option[:end]}=x"):
            with pytest.raises(Refused, match="is not offered here"):
                check(command, ["--message=x", argument], HERE)


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        ("commit", "-F"), ("commit", "-Fx"), ("commit", "-aF"), ("commit", "-avFx"), ("commit", "-qtx"),
        ("commit", "-S"), ("commit", "-aSkey"), ("commit", "-e"), ("commit", "-p"), ("commit", "-c"),
        ("commit", "--pat"), ("commit", "--edit"), ("commit", "--inter"), ("commit", "- point"),
        ("add", "-i"), ("add", "-p"), ("add", "-Ae"), ("add", "--patch"), ("checkout", "-p"), ("checkout", "-qp"),
        ("diff", "-O/etc/passwd"), ("diff", "-pOx"), ("log", "-O"), ("show", "-wOx"), ("pull", "-S"), ("pull", "-qe"),
    ],
)  # fmt: skip
def test_a_short_option_is_found_in_a_cluster(command: str, argument: str) -> None:
    with pytest.raises(Refused, match="is not offered here"):
        check(command, ["--message=x", argument], HERE)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("commit", ["-m", "Fix it"]), ("commit", ["-amFix it"]), ("commit", ["--amend", "--no-edit"]),
        ("commit", ["--message=- a point"]), ("commit", ["-qm", "x", "--", "a.txt"]), ("log", ["-SFOO", "-n", "3"]),
        ("log", ["-p", "--text", "--stat", "--since=yesterday", "main..topic"]), ("diff", ["HEAD~1", "--", "../a.txt"]),
        ("show", ["HEAD:../secret/../../x.txt"]), ("show", ["HEAD~2:src/a.py"]), ("add", ["-A"]), ("add", ["."]),
        ("add", [":/", ":!b"]), ("checkout", ["-b", "topic"]), ("checkout", ["--", "a.txt"]), ("checkout", ["-"]),
        ("pull", ["--rebase", "origin", "main"]), ("pull", ["https://example.org/x.git"]), ("status", ["-sb"]),
        ("diff", ["--", "--output"]), ("diff", ["--output-indicator-new=>"]), ("log", ["--no-ext-diff"]),
        ("diff", ["/w/project/a.txt"]),
    ],
)  # fmt: skip
def test_usual_arguments_pass(command: str, arguments: list[str]) -> None:
    assert check(command, arguments, HERE)[-len(arguments) :] == tuple(arguments)


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        ("diff", "/etc/passwd"), ("diff", "../../b"), ("add", "/w/other"), ("diff", "a/../../../../etc/passwd"),
        ("pull", "/w/other.git"), ("pull", "../../other"), ("diff", "/w/project-2/a"), ("log", "../.."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", [[], ["--"]])
def test_a_name_does_not_lead_out_of_the_repository(command: str, argument: str, before: list[str]) -> None:
    """Of two names `diff` compares any files of the machine when one of them lies elsewhere."""
    with pytest.raises(Refused, match="leads out of the repository"):
        check(command, [*before, argument, "a.txt"], HERE)


@pytest.mark.parametrize("argument", ["a\0b", "a\ud800", "x" * 20_001])
def test_what_no_program_can_be_given_is_refused(argument: str) -> None:
    with pytest.raises(Refused, match="cannot hold"):
        check("log", [argument], HERE)


@pytest.mark.parametrize("arguments", [[], ["-a"], ["-q"], ["a.txt"]])
def test_a_commit_needs_its_message(arguments: list[str]) -> None:
    with pytest.raises(Refused, match="give --message=TEXT or --no-edit"):
        check("commit", arguments, HERE)


@pytest.mark.parametrize(
    "argument", ["-D", "-d", "-m", "-M", "-c", "-f", "-u", "-aD", "--del", "--move", "--edit-description", "--force",
                 "--set-upstream-to=x", "--unset-upstream", "--track", "--create-reflog"],
)  # fmt: skip
def test_branch_only_lists(argument: str) -> None:
    with pytest.raises(Refused, match="is not offered here"):
        check("branch", [argument, "main"], HERE)


def test_a_name_alone_makes_no_branch() -> None:
    assert check("branch", ["topic"], HERE) == ("--list", "topic")
    assert check("branch", ["-avv", "--sort=-committerdate"], HERE) == ("--list", "-avv", "--sort=-committerdate")
    assert check("branch", ["--show-current"], HERE) == ("--show-current",)


def test_a_refusal_names_the_argument_and_is_short() -> None:
    with pytest.raises(Refused) as refused:
        check("log", [f"--output={'x' * 9_000}"], HERE)

    assert "'--output=xxx" in (refused.value.user_text or "")
    assert len(refused.value.user_text or "") < 200


async def test_the_real_git_would_have_done_it(toolbox: Toolbox, repository: Repository, trap: Trap) -> None:
    """The beginnings and clusters that are refused above are ones that this git takes."""
    secret = repository.write("secret.txt", "canary\n")
    repository.git("diff", "--output=written", "HEAD")
    repository.git("commit", "--allow-empty", "-qF", str(secret))
    repository.git("commit", "--allow-empty", "--fil", str(secret))
    repository.git("pull", f"--upload-pac={trap.program}", ".", fails=True)

    assert (repository.top / "written").exists()
    assert "canary" in repository.git("log", "-n1", "--format=%s")
    assert trap.sprung
    refused = ("diff --output=again", "commit -qFsecret.txt", "commit --fil=secret.txt", "pull --upload-pac=x")
    for command, argument in map(str.split, refused):
        tool = "git_read" if command == "diff" else "git_write"
        result = await toolbox.call(tool, command=command, args=[argument], repo="project")
        assert result.denied
    assert not (repository.top / "again").exists()
