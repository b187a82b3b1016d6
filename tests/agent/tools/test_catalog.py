"""What every built-in tool keeps to."""

from __future__ import annotations

import json
from dataclasses import replace

import fastjsonschema
import pytest

from fermix.agent.dispatch import Dispatcher
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.schema import compiled
from fermix.clock import SystemClock
from fermix.events import Events
from fermix.trust import PolicyClass, Trust
from tests.agent.tools.conftest import Toolbox
from tests.fakes.turns import RecordingPort, make_call, make_scope, make_turn


def test_the_tools_and_who_may_use_them(toolbox: Toolbox) -> None:
    """Files may be looked at by a guest too; a command is the operator's."""
    assert [(tool.name, tool.policy, tool.owner_only) for tool in toolbox.tools] == [
        ("file_read", PolicyClass.READ_ONLY, False),
        ("glob_search", PolicyClass.READ_ONLY, False),
        ("content_search", PolicyClass.READ_ONLY, False),
        ("shell", PolicyClass.EXEC, True),
        ("file_write", PolicyClass.READ_WRITE, True),
        ("file_edit", PolicyClass.READ_WRITE, True),
        ("git_read", PolicyClass.READ_ONLY, True),
        ("git_write", PolicyClass.READ_WRITE, True),
        ("request_directory_access", PolicyClass.EXTERNAL_API, True),
        ("web_fetch", PolicyClass.NETWORK, True),
        ("web_search", PolicyClass.NETWORK, True),
        ("memory_store", PolicyClass.READ_WRITE, True),
        ("memory_recall", PolicyClass.READ_ONLY, True),
        ("memory_forget", PolicyClass.READ_WRITE, True),
        ("memory_sources_list", PolicyClass.READ_ONLY, True),
        ("session_search", PolicyClass.READ_ONLY, True),
        ("model_routing_config", PolicyClass.READ_WRITE, True),
        ("send_attachment", PolicyClass.READ_ONLY, True),
        ("react", PolicyClass.READ_ONLY, False),
        ("tool_result_recall", PolicyClass.READ_ONLY, True),
        ("tool_help", PolicyClass.READ_ONLY, False),
        ("tool_search", PolicyClass.READ_ONLY, False),
        ("tool_describe", PolicyClass.READ_ONLY, False),
        ("tool_call", PolicyClass.READ_ONLY, False),
    ]


def test_every_schema_is_one_and_the_whole_is_short(toolbox: Toolbox) -> None:
    """A small local model reads about 110 tokens a second, so its four together stay under 450 tokens."""
    for tool in toolbox.tools:
        fastjsonschema.compile(tool.parameters)
        assert tool.parameters["type"] == "object"

    wire = json.dumps(
        [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in toolbox.tools[:4]]
    )
    assert len(wire) < 450 * 4


async def test_no_tool_overlooks_an_argument_that_it_does_not_have(toolbox: Toolbox) -> None:
    """Issue 4: a clear error that the model can mend, where an option of another name would be passed over in silence.
    What stands beside the arguments of `tool_call` is told by the tool itself.
    """
    for tool in (tool for tool in toolbox.tools if tool.name != "tool_call"):
        check = compiled(replace(tool, parameters={**tool.parameters, "required": []}))
        with pytest.raises(fastjsonschema.JsonSchemaValueException, match="nonsense"):
            check({"nonsense": 1})


async def test_an_argument_of_another_name_is_told_and_nothing_runs(toolbox: Toolbox) -> None:
    result = await toolbox.call("shell", command="touch made", cwd="/tmp")

    assert (result.ok, "cwd" in result.text) == (False, True)
    assert not (toolbox.workspace / "made").exists()


@pytest.mark.parametrize(
    "name",
    [
        "file_read",
        "glob_search",
        "content_search",
        "shell",
        "git_read",
        "git_write",
        "model_routing_config",
        "request_directory_access",
        "web_fetch",
        "web_search",
        "send_attachment",
        "react",
    ],
)
async def test_wrong_arguments_are_a_result(toolbox: Toolbox, name: str) -> None:
    result = await toolbox.call(name, nonsense=1)

    assert not result.ok
    assert "arguments do not fit" in result.text


async def test_a_guest_who_names_a_tool_that_is_not_his_runs_nothing(toolbox: Toolbox) -> None:
    """R-19: refused where it would run, and told the same as of a tool that does not exist."""
    own = CapabilityRegistry(toolbox.tools).list_for(Trust.GUEST)
    others = {tool.name for tool in toolbox.tools} - {tool.name for tool in own}
    turn, port = make_turn(trust=Trust.GUEST), RecordingPort()
    dispatcher = Dispatcher(Events(SystemClock()), SystemClock())
    told = {}
    for name in ("no_such_tool", *sorted(others)):
        call = make_call(name, command="touch mark", path=str(toolbox.workspace), reason="please")
        result = await dispatcher.dispatch(call, make_scope(*own, turn=turn, port=port))
        assert result.denied
        told[name] = result.text.replace(name, "")

    assert len(told) > 2
    assert len(set(told.values())) == 1
    assert (port.sent, port.effects) == ([], [])
    assert not (toolbox.workspace / "mark").exists()
