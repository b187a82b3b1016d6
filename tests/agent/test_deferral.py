from __future__ import annotations

from collections.abc import Mapping

import pytest

from fermix.agent.capability import Capability, Kind
from fermix.agent.deferral import offer, unwrapped
from fermix.agent.model import JsonValue, ToolCall
from fermix.agent.tools import tool_search
from fermix.agent.tools.tool_search import ToolSearchSettings
from tests.fakes.turns import make_call, make_capability
from tests.requirements import covers

BRIDGES = tool_search.tools(ToolSearchSettings())
OWN = (make_capability("file_read"), make_capability("review", kind=Kind.SKILL))
FOREIGN = (
    make_capability("tickets_list", kind=Kind.MCP, source="tickets"),
    make_capability("mail_send", source="mail"),
    make_capability("nameless", kind=Kind.MCP),
)


def names(tools: tuple[Capability, ...]) -> list[str]:
    return [tool.name for tool in tools]


@covers("deferral.default-on")
def test_only_tools_of_plugins_and_servers_are_held_back() -> None:
    """Architecture, design: plugin and MCP schemas are deferred; they can be called all the same."""
    offered = offer((*OWN, *BRIDGES, *FOREIGN))

    assert names(offered.shown) == ["file_read", "review", "tool_search", "tool_describe", "tool_call"]
    assert offered.deferred == FOREIGN
    assert set(offered.tools) == {*names(OWN), *names(BRIDGES), *names(FOREIGN)}


def test_there_are_no_bridges_to_nowhere() -> None:
    """Reference 4, 4.4: they stand for what is deferred, and cost their own schemas."""
    offered = offer((*OWN, *BRIDGES))

    assert (offered.shown, offered.deferred) == (OWN, ())
    assert set(offered.tools) == set(names(OWN))


def test_a_list_of_allowed_tools_shows_them_whole() -> None:
    """Reference 4, 4.4: a run with an explicit allow-list bypasses deferral."""
    offered = offer((*OWN, *BRIDGES, *FOREIGN), inline=True)

    assert (offered.shown, offered.deferred) == ((*OWN, *FOREIGN), ())


@pytest.mark.parametrize("bridges", [(), BRIDGES[:2]], ids=["switched off", "one is missing"])
def test_nothing_is_held_back_that_could_not_be_reached(bridges: tuple[Capability, ...]) -> None:
    assert offer((*OWN, *bridges, *FOREIGN)).shown == (*OWN, *FOREIGN)


ALL = offer((*OWN, *BRIDGES, *FOREIGN)).tools
INNER: Mapping[str, JsonValue] = {"page": 2}


@pytest.mark.parametrize("arguments", [INNER, '{"page": 2}'], ids=["object", "text"])
def test_a_call_through_the_bridge_is_the_call_of_its_tool(arguments: JsonValue) -> None:
    """Reference 4, 1.5 and fault 26: unwrapped before anything else looks at it, under the id that the model gave."""
    call = ToolCall("call00001", "tool_call", {"name": "tickets_list", "arguments": arguments})

    assert unwrapped(call, ALL) == ToolCall("call00001", "tickets_list", {"page": 2})


@pytest.mark.parametrize("arguments", [{}, {"arguments": None}], ids=["missing", "null"])
def test_no_arguments_are_an_empty_object(arguments: Mapping[str, JsonValue]) -> None:
    call = ToolCall("call00001", "tool_call", {"name": "tickets_list", **arguments})

    assert unwrapped(call, ALL) == ToolCall("call00001", "tickets_list", {})


@pytest.mark.parametrize(
    "call",
    [
        make_call("tickets_list", page=2),
        make_call("tool_call"),
        make_call("tool_call", name="", arguments={}),
        make_call("tool_call", name=7, arguments={}),
        make_call("tool_call", name="tickets_list", arguments=[1]),
        make_call("tool_call", name="tickets_list", arguments="{broken"),
        make_call("tool_call", name="tickets_list", arguments='"text"'),
        make_call("tool_call", name="tickets_list", page=2),
        make_call("tool_call", name="tool_call", arguments={"name": "tickets_list"}),
        make_call("tool_call", name="tool_search", arguments={"query": "x"}),
        ToolCall("call00001", "tool_call", {}, problem="cut off"),
    ],
    ids=lambda call: str(dict(call.arguments)),
)
def test_what_is_no_call_of_another_tool_stays_as_it_is(call: ToolCall) -> None:
    """Reference 4, 1.5: malformed ones fall through to the bridge; a bridge calls no bridge."""
    assert unwrapped(call, ALL) is call


def test_where_there_is_no_bridge_its_name_means_nothing() -> None:
    call = make_call("tool_call", name="file_read", arguments={})

    assert unwrapped(call, offer(OWN).tools) is call
