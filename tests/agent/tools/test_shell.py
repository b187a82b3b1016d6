"""shell with real commands."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from fermix.agent.capability import ToolContext
from fermix.agent.dispatch import Dispatcher
from fermix.agent.exposure import Exposure
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.sandbox import SandboxSettings
from fermix.agent.tools import shell
from fermix.clock import SystemClock
from fermix.errors import Unusable
from fermix.events import Events
from fermix.native import confine
from fermix.trust import PolicyClass, Trust
from tests.agent.tools.conftest import Toolbox
from tests.fakes.turns import RecordingPort, make_call, make_scope, make_turn, turn_from
from tests.requirements import covers


@covers("child.every-command")
async def test_a_command_runs_in_the_workspace(toolbox: Toolbox) -> None:
    assert await toolbox.call("shell", command="pwd") == ToolResult(True, f"{toolbox.workspace}\n")


async def test_a_command_is_judged_beside_the_loop(toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred kilobytes that are made for it take a third of a second."""
    loops_own, threads = threading.get_ident(), set[int]()

    def judge(_command: str) -> str:
        threads.add(threading.get_ident())
        return "is not liked"

    monkeypatch.setattr(shell, "why_refused", judge)

    result = await toolbox.call("shell", command="pwd")

    assert result == ToolResult(False, "refused in every mode: this is not liked", denied=True)
    assert threads
    assert loops_own not in threads


async def test_a_command_runs_where_the_operator_stands(toolbox: Toolbox, tmp_path: Path) -> None:
    project = tmp_path / "user/project"
    project.mkdir()

    assert (await toolbox.call("shell", turn_from(project), command="pwd")).text == f"{project}\n"


async def test_a_command_that_runs_elsewhere_says_where_and_why(toolbox: Toolbox, tmp_path: Path) -> None:
    """A listing of the workspace is not to be taken for one of the folder that was asked about."""
    result = await toolbox.call("shell", turn_from(tmp_path), command="pwd")

    assert result.ok
    assert result.text.startswith(
        f"{toolbox.workspace}\n\n[this ran in {toolbox.workspace}: I may not look into {tmp_path}: only"
    )


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo out; echo err >&2; exit 3", "out\nerr\n\n[exit code 3]"),
        ("exit 1", "[exit code 1]"),
        ("kill -SEGV $$", "[ended by signal 11 (Segmentation fault)]"),
        ("cat; read x", "[exit code 1]"),
        ("no-such-program", "not found"),
    ],
)
async def test_a_failure_says_how_it_failed(toolbox: Toolbox, command: str, text: str) -> None:
    result = await toolbox.call("shell", command=command)

    assert not result.ok
    assert text in result.text


async def test_a_command_that_takes_too_long_is_stopped(toolbox: Toolbox) -> None:
    result = await toolbox.call("shell", command="echo begun; sleep 600", timeout_ms=700)

    assert result.text == "begun\n\n[stopped after 0.7 s; use a quicker command or a larger timeout_ms]"


async def test_endless_output_keeps_its_head_and_tail(toolbox: Toolbox) -> None:
    """EXE-09: both ends, and how much is missing between and behind them."""
    result = await toolbox.call("shell", command="echo first; yes")

    assert not result.ok
    assert result.text.startswith("first\ny\n")
    assert "characters left out here" in result.text
    assert "stopped after 1048576 bytes of output" in result.text


async def test_output_in_no_encoding_is_still_text(toolbox: Toolbox) -> None:
    """EXE-10: byte 0xF3, and UTF-16."""
    result = await toolbox.call("shell", command=r"printf 'a\363b'; printf 'x\000y\000'")

    assert result == ToolResult(True, "a\ufffdbx\0y\0")


async def test_output_is_never_cut_inside_a_character(toolbox: Toolbox) -> None:
    """EXE-13: CJK and emoji around every byte cap."""
    result = await toolbox.call("shell", command="printf '漢👩%.0s' {1..40000}")

    result.text.encode("utf-8")
    assert result.ok
    assert "\ufffd" not in result.text


async def test_an_address_is_not_taken_for_a_path(toolbox: Toolbox) -> None:
    """EXE-14: `/Paris`."""
    assert await toolbox.call("shell", command="echo wttr.in/Paris") == ToolResult(True, "wttr.in/Paris\n")


async def test_nothing_of_ours_reaches_a_command(toolbox: Toolbox) -> None:
    """R-40, SEC-05: a child prints its environment. PKG-01: not even where the frozen program lies."""
    result = await toolbox.call("shell", command="env")

    assert "PATH=/usr/bin:/bin" in result.text
    assert "OPENAI_API_KEY" not in result.text
    assert "FERMIX_EXE" not in result.text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"command": "rm -rf ~"}, "refused in every mode: this deletes a whole system or home folder"),
        ({"command": "pwd", "working_dir": "/etc"}, "protected, no tool may touch it"),
        ({"command": "pwd", "working_dir": "../.."}, "only these folders are open"),
    ],
)
async def test_what_is_not_allowed_is_denied(toolbox: Toolbox, arguments: dict[str, str], sentence: str) -> None:
    result = await toolbox.call("shell", **arguments)

    assert result.denied
    assert sentence in result.text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"command": "pwd", "working_dir": "none"}, "working_dir is not a folder"),
        ({"command": "true " + "x" * 200_000}, "could not be started: Argument list too long"),
        ({"command": "a\0b"}, "a command cannot hold a NUL character"),
        ({"command": "a\ud800b"}, "or half a surrogate pair"),
    ],
)
async def test_what_cannot_be_started_is_said(toolbox: Toolbox, arguments: dict[str, str], sentence: str) -> None:
    result = await toolbox.call("shell", **arguments)

    assert not result.ok
    assert sentence in result.text


@pytest.mark.parametrize("command", ["true", "ls", "echo hi", "cat /dev/null", "git status", ": # read only"])
async def test_a_harmless_looking_command_counts_like_any_other(toolbox: Toolbox, command: str) -> None:
    """R-22: nothing is concluded from the text; it is marked as an effect before it runs, and no guest has it."""
    port = RecordingPort()
    await toolbox.call("shell", port=port, command=command)

    assert port.effects == ["shell"]
    (tool,) = (tool for tool in toolbox.tools if tool.name == "shell")
    assert (tool.policy, tool.owner_only) == (PolicyClass.EXEC, True)
    assert "shell" not in {tool.name for tool in CapabilityRegistry(toolbox.tools).list_for(Trust.GUEST)}


def test_there_is_no_list_of_commands_that_may_run() -> None:
    """R-23: an allow list would have to trust `env`, `git -c`, `find -exec`; nobody can write one down. What stands
    in `commands` are tools of their own, behind the same walls.
    """
    fields = {"mode", "allowed_roots", "blocked_roots", "network", "env", "commands"}
    assert set(SandboxSettings.model_fields) == fields


async def test_a_guard_that_cannot_run_blocks(toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-24: the pattern list only ever refuses, and a command that it cannot judge does not run."""

    def broken(command: str) -> str | None:
        raise RecursionError("too deep")

    monkeypatch.setattr(shell, "why_refused", broken)
    result = await toolbox.call("shell", command="touch mark")

    assert not result.ok
    assert not (toolbox.workspace / "mark").exists()


async def exposed_call(toolbox: Toolbox, **arguments: JsonValue) -> ToolResult:
    """A call in a turn that comes after one that has read from outside."""
    scope = replace(make_scope(*toolbox.tools), exposure=Exposure(earlier=True))
    async with asyncio.timeout(5):
        return await Dispatcher(Events(SystemClock()), SystemClock()).dispatch(make_call("shell", **arguments), scope)


async def test_after_words_from_outside_a_command_runs_without_the_network_and_says_so(toolbox: Toolbox) -> None:
    """R-49, the walls: it sees no interface but a closed loopback."""
    result = await exposed_call(toolbox, command="cat /proc/net/dev | wc -l; echo free")

    assert result.ok
    assert result.text.startswith("3\nfree")
    assert "commands get no network" in result.text
    assert "commands get no network" not in (await toolbox.call("shell", command="true")).text


async def test_where_the_network_cannot_be_closed_it_does_not_run(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confine, "PROGRAM", Path("/nonexistent/confine"))
    result = await exposed_call(toolbox, command="touch mark")

    assert result.denied
    assert "cannot be confined" in result.text
    assert '"network": true' in result.text
    assert not (toolbox.workspace / "mark").exists()


async def test_with_the_network_it_needs_the_owner(toolbox: Toolbox) -> None:
    result = await exposed_call(toolbox, command="touch mark", network=True)

    assert result.denied
    assert "wants the network" in result.text
    assert not (toolbox.workspace / "mark").exists()


async def test_a_folder_that_is_none_is_told_before_the_owner_is_asked(toolbox: Toolbox) -> None:
    shell = next(tool for tool in toolbox.tools if tool.name == "shell")
    assert shell.acts_in is not None
    context = ToolContext(make_turn(), RecordingPort(), "c1")

    assert await shell.acts_in({"command": "ls"}, context) == str(toolbox.workspace)
    with pytest.raises(Unusable, match="not a folder"):
        await shell.acts_in({"command": "ls", "working_dir": "nothing here"}, context)


async def test_another_folder_in_the_place_of_the_one_that_was_shown_is_noticed(toolbox: Toolbox) -> None:
    """R-25: the yes is bound to the folder itself and not to its name."""
    shell = next(tool for tool in toolbox.tools if tool.name == "shell")
    assert shell.acts_on is not None
    context, arguments = ToolContext(make_turn(), RecordingPort(), "c1"), {"command": "ls", "working_dir": "project"}
    folder = toolbox.workspace / "project"
    folder.mkdir()

    before = await shell.acts_on(arguments, context)
    (folder / "new").touch()
    assert await shell.acts_on(arguments, context) == before
    folder.rename(toolbox.workspace / "away")
    folder.mkdir()
    assert await shell.acts_on(arguments, context) != before
