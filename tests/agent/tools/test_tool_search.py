from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fermix.agent.capability import Capability, Kind
from fermix.agent.deferral import offer
from fermix.agent.dispatch import Dispatcher
from fermix.agent.model import JsonObject, JsonValue, ToolResult
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.results import unframed
from fermix.agent.tools import tool_search
from fermix.agent.tools.catalog import build_tools
from fermix.agent.tools.tool_search import MISUSED, ToolSearchSettings
from fermix.clock import SystemClock
from fermix.config.load import build
from fermix.events import Events
from fermix.home import Home
from fermix.setup.sections import SECTIONS
from fermix.trust import PolicyClass, Trust
from tests.agent.tools.conftest import Toolbox
from tests.fakes.turns import make_call, make_capability, make_scope, make_turn
from tests.requirements import covers

PAGE: JsonObject = {"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]}
LIST = make_capability(
    "tickets_list",
    kind=Kind.MCP,
    policy=PolicyClass.EXTERNAL_API,
    source="tickets",
    parameters=PAGE,
    description="List all tickets. " + "x" * 500,
)
WEATHER = make_capability("weather_today", source="weather", description="Says whether it rains.")
REGISTRY = CapabilityRegistry([make_capability("file_read"), *tool_search.tools(ToolSearchSettings()), LIST, WEATHER])


async def ask(name: str, trust: Trust = Trust.OPERATOR, /, **arguments: JsonValue) -> ToolResult:
    tools = offer(REGISTRY.list_for(trust)).tools.values()
    dispatcher = Dispatcher(Events(SystemClock()), SystemClock())
    return await dispatcher.dispatch(make_call(name, **arguments), make_scope(*tools, turn=make_turn(trust=trust)))


def inside(result: ToolResult) -> object:
    """Take the answer out of its frame."""
    foreign = unframed(result.text)
    assert result.ok
    assert foreign is not None
    return json.loads(foreign[1])


@covers("deferral.bridges")
async def test_search_names_what_matches_and_how_much_there_is() -> None:
    """Reference 4, 4.4: query, total_available, matches with name, source and the first 400 of the description."""
    found = inside(await ask("tool_search", query="list tickets"))

    assert found == {
        "query": "list tickets",
        "total_available": 2,
        "matches": [{"name": "tickets_list", "source": "tickets", "description": LIST.description[:400]}],
    }


async def test_search_that_finds_nothing_says_so_in_our_own_words() -> None:
    result = await ask("tool_search", query="zebra")

    assert json.loads(result.text) == {"query": "zebra", "total_available": 2, "matches": []}
    assert not result.outside


@pytest.mark.parametrize(("limit", "count"), [(None, 5), (1, 1), (20, 20)])
async def test_search_gives_as_many_as_asked_for(limit: int | None, count: int) -> None:
    tools = [make_capability(f"tickets_{n}", kind=Kind.MCP, source="tickets") for n in range(30)]
    scope = make_scope(*tool_search.tools(ToolSearchSettings()), *tools)
    asked: dict[str, JsonValue] = {"query": "tickets"} if limit is None else {"query": "tickets", "limit": limit}
    dispatcher = Dispatcher(Events(SystemClock()), SystemClock())

    found = inside(await dispatcher.dispatch(make_call("tool_search", **asked), scope))

    assert isinstance(found, dict)
    assert (len(found["matches"]), found["total_available"]) == (count, 30)


@pytest.mark.parametrize(
    "arguments", [{"query": "x", "limit": 21}, {"query": "x", "limit": 0}, {"query": ""}, {}], ids=str
)
async def test_search_refuses_what_it_does_not_understand(arguments: dict[str, JsonValue]) -> None:
    assert "arguments do not fit" in (await ask("tool_search", **arguments)).text


@covers("deferral.bridges")
async def test_describe_shows_the_whole_schema_as_words_from_outside() -> None:
    """INJ-01: what a server says about its own tool is data; it also counts as read from outside (R-49)."""
    result = await ask("tool_describe", name="tickets_list")

    assert inside(result) == {
        "name": "tickets_list",
        "source": "tickets",
        "description": LIST.description,
        "parameters": PAGE,
    }
    assert result.outside


async def test_describe_shows_a_tool_of_ours_too() -> None:
    result = await ask("tool_describe", name="file_read")

    assert json.loads(result.text)["name"] == "file_read"
    assert not result.outside


@pytest.mark.parametrize("name", ["tool_call", "nothing", "../etc"])
async def test_describe_answers_of_what_it_cannot_show_as_dispatch_does(name: str) -> None:
    """Fault 24: unknown and invisible names are answered byte for byte alike, and as dispatch answers them."""
    described = await ask("tool_describe", name=name)
    called = await ask("no_such_tool")

    assert described.denied
    assert described.text.replace(name, "no_such_tool") == called.text


@pytest.mark.parametrize("bridge", ["tool_search", "tool_describe", "tool_call"])
async def test_guest_has_no_bridge(bridge: str) -> None:
    """Fault 24: all that is deferred is foreign, and nothing foreign is a guest's, whatever it says of itself."""
    assert WEATHER.policy is PolicyClass.READ_ONLY
    answer = await ask(bridge, Trust.GUEST, query="weather", name="weather_today")

    assert answer.denied
    assert answer.text == (await ask("no_such_tool", Trust.GUEST)).text.replace("no_such_tool", bridge)


@pytest.mark.parametrize(
    "arguments", [{"name": "tool_call", "arguments": {"name": "x"}}, {"name": "tool_search"}], ids=str
)
async def test_call_that_cannot_be_understood_is_answered_with_how_to_do_it(arguments: dict[str, JsonValue]) -> None:
    """Reference 4, 1.5: malformed bridge calls get guidance."""
    result = await ask("tool_call", **arguments)

    assert (result.ok, result.text) == (False, MISUSED)


@covers("deferral.off")
def test_one_key_switches_the_bridges_off(tmp_path: Path) -> None:
    """Reference 4, 4.4: `[fermix_core.tools.tool_search] enabled = false`, and the three do not exist."""
    off = build("[fermix_core.tools.tool_search]\nenabled = false\n", Home(tmp_path), {}, SECTIONS)

    assert tool_search.tools(off[ToolSearchSettings]) == ()


@covers("deferral.off")
def test_a_reload_with_the_key_builds_no_bridge(toolbox: Toolbox, tmp_path: Path) -> None:
    """The tools are built again with every configuration, so the next turn has them or has them not."""
    off = build("[fermix_core.tools.tool_search]\nenabled = false\n", Home(tmp_path), {}, SECTIONS)

    built = [tool.name for tool in build_tools(replace(toolbox.deps, config=off))]

    assert {tool.name for tool in toolbox.tools} - set(built) == {"tool_search", "tool_describe", "tool_call"}


def names(tools: tuple[Capability, ...]) -> list[str]:
    return [tool.name for tool in tools]


@covers("deferral.off")
def test_without_bridges_every_schema_is_in_the_request() -> None:
    registry = CapabilityRegistry(
        [make_capability("file_read"), *tool_search.tools(ToolSearchSettings(enabled=False)), LIST]
    )

    assert names(offer(registry.list_for(Trust.OPERATOR)).shown) == ["file_read", "tickets_list"]
