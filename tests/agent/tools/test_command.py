"""run_NAME with real programs: which are offered, what they are called with, what they get."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fermix.agent.capability import ToolContext
from fermix.agent.model import ToolResult
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.sandbox import SandboxSettings
from fermix.agent.sandbox.name_rules import WRAPPERS
from fermix.trust import PolicyClass, Trust
from tests.agent.tools.conftest import Toolbox
from tests.fakes.turns import RecordingPort, make_turn


def configured(toolbox: Toolbox, commands: Mapping[str, object], env: Mapping[str, object] | None = None) -> Toolbox:
    settings = SandboxSettings.model_validate({"commands": commands, "env": env or {}})
    toolbox.deps.sandbox.use(settings)
    return toolbox


def own(toolbox: Toolbox) -> list[str]:
    return [tool.name for tool in toolbox.tools if tool.category == "command"]


async def test_a_program_gets_exactly_its_arguments(toolbox: Toolbox) -> None:
    """R-22: an argument vector, no shell."""
    configured(toolbox, {"say": {"command": "printf", "args": ("<%s>",)}})
    result = await toolbox.call("run_say", args=["a b", "$(touch x)", ";touch y", "*"], prompt="`touch z`\n&& exit 3")

    assert result == ToolResult(True, "<a b><$(touch x)><;touch y><*><`touch z`\n&& exit 3>")
    assert list(toolbox.workspace.iterdir()) == []


async def test_the_program_is_found_once_and_that_file_runs(toolbox: Toolbox) -> None:
    """R-22: not what lies in the folder where it runs."""
    toolbox.write("uname", "#!/bin/sh\necho fooled\n")
    (toolbox.workspace / "uname").chmod(0o700)
    configured(toolbox, {"system": {"command": "uname"}})

    assert (await toolbox.call("run_system")).text == "Linux\n"


async def test_it_gets_the_variables_it_needs_and_no_others(toolbox: Toolbox) -> None:
    env = {"allow": ("OPENAI_API_KEY", "OTHER")}
    configured(toolbox, {"seen": {"command": "printenv", "pass_env": ("OPENAI_API_KEY",)}}, env)
    result = await toolbox.call("run_seen")

    assert "OPENAI_API_KEY=secret" in result.text
    assert "OTHER" not in result.text


async def test_it_does_not_run_without_what_it_needs(toolbox: Toolbox) -> None:
    configured(toolbox, {"seen": {"command": "printenv", "pass_env": ("OPENAI_API_KEY", "GONE")}}, {"allow": ("GONE",)})
    result = await toolbox.call("run_seen")

    assert not result.ok
    assert "OPENAI_API_KEY has no value here: it is not allowed; the owner can type `/grant env" in result.text
    assert "GONE has no value here: the daemon was started without it" in result.text


@pytest.mark.parametrize(
    ("commands", "names"),
    [
        ({}, []),
        ({"presets": ("dev_tools",)}, []),
        ({"presets": ("dev_tools",), "profile": "assistant"}, ["run_git", "run_make"]),
        ({"presets": ("dev_tools",), "profile": "extended"}, ["run_git", "run_make"]),
        ({"hi": {"command": "echo"}}, ["run_hi"]),
        ({"hi": {"command": "echo", "enabled": False}}, []),
        ({"hi": {"command": "no-such-program"}}, []),
    ],
)
def test_what_is_offered(toolbox: Toolbox, commands: Mapping[str, object], names: list[str]) -> None:
    """Reference 4, 5.5: bare offers no preset; a program that is not there is no tool."""
    configured(toolbox, commands)

    assert [name for name in own(toolbox) if name != "run_gh"] == names


def test_only_the_owner_has_it(toolbox: Toolbox) -> None:
    configured(toolbox, {"hi": {"command": "echo"}})
    (tool,) = (tool for tool in toolbox.tools if tool.name == "run_hi")

    assert (tool.policy, tool.owner_only) == (PolicyClass.EXEC, True)
    assert "run_hi" not in {tool.name for tool in CapabilityRegistry(toolbox.tools).list_for(Trust.GUEST)}


async def test_a_command_that_was_closed_meanwhile_does_not_run(toolbox: Toolbox) -> None:
    """What narrows applies at once, also to a turn that began before."""
    tools = configured(toolbox, {"hi": {"command": "touch", "args": ("mark",)}}).tools
    for later in ({}, {"hi": {"command": "echo"}}, {"hi": {"command": "touch", "args": ("mark",), "enabled": False}}):
        configured(toolbox, later)
        (tool,) = (tool for tool in tools if tool.name == "run_hi")
        result = await tool.run({}, ToolContext(make_turn(), RecordingPort(), "1"))
        assert (result.denied, result.text) == (True, "the owner has closed or changed this command meanwhile")
    assert list(toolbox.workspace.iterdir()) == []


@pytest.mark.parametrize("program", sorted(WRAPPERS))
@pytest.mark.parametrize("form", ["{}", "/usr/bin/{}", "{}3", "{}-3.11"])
def test_a_wrapper_or_an_interpreter_is_no_command(program: str, form: str) -> None:
    """R-23: refused where the configuration is read."""
    with pytest.raises(ValueError, match="runs whatever it is given"):
        SandboxSettings.model_validate({"commands": {"x": {"command": form.format(program)}}})


def test_a_wrapper_under_another_name_is_no_tool(toolbox: Toolbox, tmp_path: Path) -> None:
    """R-23: judged by the program that a link leads to."""
    link = tmp_path / "innocent"
    link.symlink_to("/bin/sh")
    configured(toolbox, {"x": {"command": str(link)}})

    assert own(toolbox) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"args": ["-rf", "/"]}, "refused in every mode: this deletes a whole system"),
        ({"args": ["a\0b"]}, "cannot hold a NUL character"),
        ({"working_dir": "/etc"}, "protected, no tool may touch it"),
        ({"args": "x"}, "arguments do not fit"),
        ({"command": "x"}, "arguments do not fit"),
    ],
)
async def test_what_must_not_run_is_refused(toolbox: Toolbox, arguments: dict[str, str], text: str) -> None:
    configured(toolbox, {"remove": {"command": "rm"}})
    result = await toolbox.call("run_remove", **arguments)

    assert not result.ok
    assert text in result.text


async def test_it_stands_behind_the_walls_of_its_turn(toolbox: Toolbox, tmp_path: Path) -> None:
    secret = tmp_path / "user/.ssh/id"
    secret.parent.mkdir()
    secret.write_text("canary", encoding="utf-8")
    configured(toolbox, {"look": {"command": "cat"}})

    assert "canary" not in (await toolbox.call("run_look", args=[str(secret)])).text


async def test_the_owner_sees_which_program_runs_and_is_asked_about_that_very_file(
    toolbox: Toolbox, tmp_path: Path
) -> None:
    """R-25, R-26: the program by its whole path, and its identity, size and times in the seal."""
    program = tmp_path / "tickets"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o700)
    configured(toolbox, {"tickets": {"command": str(program), "args": ("--plain",)}})
    tool = next(tool for tool in toolbox.tools if tool.name == "run_tickets")
    assert tool.acts_in is not None
    assert tool.acts_on is not None
    context = ToolContext(make_turn(), RecordingPort(), "c1")

    assert await tool.acts_in({}, context) == f"{toolbox.workspace}, where it runs: {program} --plain"
    before = await tool.acts_on({}, context)
    assert await tool.acts_on({}, context) == before
    program.write_text("#!/bin/sh\necho other\n", encoding="utf-8")
    assert await tool.acts_on({}, context) != before
    program.unlink()
    assert "none" in await tool.acts_on({}, context)
