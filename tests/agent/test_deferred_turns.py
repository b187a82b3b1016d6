"""Whole turns over real HTTP with the tools of a plugin and of an MCP server, which are played by fakes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonObject, JsonValue, ToolResult
from fermix.agent.tools import tool_help, tool_search
from fermix.agent.tools.tool_search import ToolSearchSettings
from fermix.agent.turn import Completed
from fermix.events import ToolCalled
from fermix.net import Net
from fermix.trust import PolicyClass, Trust
from tests.agent.conftest import World
from tests.fakes.provider import Answer, Asked, Call, ScriptedProvider
from tests.fakes.router import FACTS
from tests.fakes.routes import WIRES, router_to
from tests.fakes.turns import make_capability, make_turn, of_kind
from tests.requirements import covers

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {"ticketNumber": {"type": "integer"}},
    "required": ["ticketNumber"],
}


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    async with Net.open(loopback_only=True) as net:
        yield net


async def close(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
    return ToolResult(True, f"closed {arguments['ticketNumber']}")


def tools(*, enabled: bool = True) -> tuple[Capability, ...]:
    return (
        make_capability("look"),
        *tool_help.tools(),
        *tool_search.tools(ToolSearchSettings(enabled=enabled)),
        make_capability(
            "tickets_close",
            close,
            kind=Kind.MCP,
            policy=PolicyClass.READ_WRITE,
            source="tickets",
            parameters=SCHEMA,
            description="Close a ticket by its number.",
        ),
        make_capability("weather_today", source="weather"),
    )


def offered(asked: Asked) -> list[str]:
    """The names of the tools in a request, on any wire."""
    return [tool.get("function", tool)["name"] for tool in asked.body["tools"]]


def system(asked: Asked) -> str:
    body: Any = asked.body
    return str(body["messages"][0] if asked.wire == "chat" else body.get("system") or body["instructions"])


BRIDGES = ["tool_search", "tool_describe", "tool_call"]


@covers("deferral.default-on", "deferral.names-listed", "deferral.bridges")
@pytest.mark.parametrize("wire", sorted(WIRES))
async def test_model_finds_reads_and_calls_a_tool_whose_schema_it_was_not_sent(
    world: World, net: Net, wire: str
) -> None:
    """Architecture, design: held back by default, listed by name, reached by three bridges or by its own name."""
    arguments = {"ticketNumber": 7}
    script = [
        Answer(calls=(Call("tool_search", {"query": "close ticket"}),)),
        Answer(calls=(Call("tool_describe", {"name": "tickets_close"}),)),
        Answer(calls=(Call("tool_call", {"name": "tickets_close", "arguments": arguments}),)),
        Answer(calls=(Call("tickets_close", {"ticketNumber": 8}), Call("tickets_close", {"number": 8}))),
        Answer(text="Closed."),
        Answer(text="Yes."),
    ]
    async with (
        ScriptedProvider(script) as fake,
        world.open(router_to(fake, net, world.events, wire=wire), *tools()) as agent,
    ):
        turn = make_turn("close ticket 7")
        outcome = await world.run(agent, turn)
        assert isinstance(outcome, Completed)
        await agent.commit(turn, outcome)
        again = await world.run(agent, make_turn("is it?", turn_id="t2"))

    assert isinstance(again, Completed)
    assert fake.refusals == []
    first, *_, last = fake.requests
    assert offered(first) == ["look", "tool_help", *BRIDGES]
    assert "ticketNumber" not in first.raw.decode()
    assert "- tickets: tickets_close" in system(first)
    assert len({(str(offered(asked)), system(asked)) for asked in fake.requests}) == 1
    told = of_kind(world.seen, ToolCalled)
    assert [event.name for event in told] == ["tool_search", "tool_describe", *["tickets_close"] * 3]
    assert "closed 7" in told[2].result
    assert "closed 8" in told[3].result
    assert "must contain ['ticketNumber']" in told[4].result
    assert all(text in last.raw.decode() for text in ("closed 7", "closed 8"))


@covers("deferral.off")
async def test_switched_off_every_schema_is_sent(world: World, net: Net) -> None:
    """Architecture, design: one config key sends all schemas inline; then nothing speaks of the bridges."""
    async with (
        ScriptedProvider([Answer(text="ok")]) as fake,
        world.open(router_to(fake, net, world.events), *tools(enabled=False)) as agent,
    ):
        await world.run(agent, make_turn())

    assert offered(fake.requests[0]) == ["look", "tool_help", "tickets_close", "weather_today"]
    assert not any(name in fake.requests[0].raw.decode() for name in BRIDGES)


async def test_guest_meets_only_what_a_guest_may_call(world: World, net: Net) -> None:
    """Fault 24; Ingress and trust, two tiers: no word of a plugin or a server reaches a guest, by any name."""
    aims = [
        Call("tool_search", {"query": "tickets close"}),
        Call("tool_describe", {"name": "tickets_close"}),
        Call("tool_call", {"name": "tickets_close", "arguments": {"ticketNumber": 7}}),
        Call("tool_help", {}),
        Call("tool_help", {"name": "tickets_close"}),
        Call("tickets_close", {"ticketNumber": 7}),
    ]
    async with (
        ScriptedProvider([Answer(calls=tuple(aims)), Answer(text="no")]) as fake,
        world.open(router_to(fake, net, world.events), *tools()) as agent,
    ):
        await world.run(agent, make_turn(trust=Trust.GUEST))

    assert offered(fake.requests[0]) == ["look", "tool_help"]
    assert "tickets" not in fake.requests[0].raw.decode()
    results = [event.result for event in of_kind(world.seen, ToolCalled)]
    names = ("tool_search", "tool_describe", "tool_call", None, "tickets_close", "tickets_close")
    for name, result in zip(names, results, strict=True):
        assert result == f"unknown or unavailable tool '{name}'" if name else "tickets_close" not in result


async def test_where_nothing_is_deferred_there_is_no_bridge(world: World, net: Net) -> None:
    """Three schemas less in every request of an install without plugins and servers."""
    own = [tool for tool in tools() if not tool.source]
    async with (
        ScriptedProvider([Answer(calls=(Call("tool_search", {"query": "x"}),)), Answer(text="ok")]) as fake,
        world.open(router_to(fake, net, world.events), *own) as agent,
    ):
        await world.run(agent, make_turn())

    assert offered(fake.requests[0]) == ["look", "tool_help"]
    assert "unknown or unavailable tool" in str(fake.requests[1].body)


async def test_long_turn_stays_within_the_window_of_its_model(world: World, net: Net) -> None:
    """Reference 4, 1.5: the request stops growing; what is stored is what the model saw, and fits the next turn too."""

    async def read(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        return ToolResult(True, "".join(f"{arguments['n']}-{line}\n" for line in range(4_000)))

    def answer(asked: Asked) -> Answer:
        steps = sum(message["role"] == "assistant" for message in asked.body["messages"])
        words = Answer(text="done", input_tokens=len(asked.raw) // 4)
        return words if steps >= 99 else replace(words, text="", calls=(Call("read", {"n": steps}),))

    facts = replace(FACTS, context_tokens=50_000)
    parameters: JsonObject = {"type": "object", "required": ["n"]}
    async with ScriptedProvider(answer) as fake:
        reader = make_capability("read", read, parameters=parameters)
        async with world.open(router_to(fake, net, world.events, facts=facts), reader) as agent:
            turn = make_turn()
            outcome = await world.run(agent, turn)
            assert isinstance(outcome, Completed)
            await agent.commit(turn, outcome)
            again = await world.run(agent, make_turn("and now?", turn_id="t2"))

    sizes = [len(asked.raw) // 4 for asked in fake.requests]
    assert (outcome.text, outcome.steps) == ("done", 100)
    assert isinstance(again, Completed)
    assert max(sizes) < 45_000
    stored = json.dumps(fake.requests[-1].body["messages"])
    assert stored.count("[Fermix: a result of read") == 96
    assert "and now?" in stored


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("bridged", [True, False])
async def test_a_server_is_told_nothing_of_ours_that_an_earlier_page_may_have_wanted(
    world: World, net: Net, reads: bool, bridged: bool
) -> None:
    """R-49: a page that an earlier turn has read could have chosen what this one tells a server, whatever its class."""
    arguments = {"ticketNumber": 7}
    filing = Call("tool_call", {"name": "tickets_file", "arguments": arguments})
    if not bridged:
        filing = Call("tickets_file", arguments)
    script = [
        Answer(calls=(Call("page", {}),)),
        Answer(text="Read."),
        *([Answer(calls=(Call("look", {}),))] if reads else []),
        Answer(calls=(filing,)),
        Answer(text="Done."),
    ]
    page = make_capability("page", policy=PolicyClass.NETWORK)
    files = make_capability(
        "tickets_file", close, kind=Kind.MCP, policy=PolicyClass.EXTERNAL_API, source="tickets", parameters=SCHEMA
    )
    async with (
        ScriptedProvider(script) as fake,
        world.open(router_to(fake, net, world.events), *tools(), page, files) as agent,
    ):
        first = make_turn("read the page")
        outcome = await world.run(agent, first)
        assert isinstance(outcome, Completed)
        await agent.commit(first, outcome)
        await world.run(agent, make_turn("file ticket 7", turn_id="t2"))

    told = of_kind(world.seen, ToolCalled)[-1]
    assert told.name == "tickets_file"
    assert ("needs the owner's yes" in told.result, "closed 7" in told.result) == (reads, not reads)
