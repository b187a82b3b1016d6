"""The memory tools through the dispatcher, as a model calls them, over a real database file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from fermix.agent.approvals import Approvals
from fermix.agent.capability import Capability
from fermix.agent.dispatch import Dispatcher, ToolScope
from fermix.agent.exposure import Exposure
from fermix.agent.memory.facts import Facts
from fermix.agent.memory.search import Search
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.registry import CapabilityRegistry, narrowed
from fermix.agent.risk import reads_local
from fermix.agent.tools import memory
from fermix.agent.turn import Turn
from fermix.clock import SystemClock
from fermix.events import Events
from fermix.trust import Trust
from fermix.workers import Workers
from tests.agent.memory.facts.world import World
from tests.fakes.turns import RecordingPort, make_call, make_turn


@dataclass
class Box:
    facts: Facts
    tools: dict[str, Capability]
    turn: Turn = field(default_factory=make_turn)
    approvals: Approvals | None = None

    async def __call__(self, name: str, /, exposure: Exposure | None = None, **arguments: JsonValue) -> ToolResult:
        dispatcher = Dispatcher(Events(SystemClock()), SystemClock(), self.approvals)
        scope = ToolScope(self.tools, self.turn, RecordingPort(), exposure=exposure or Exposure())
        async with asyncio.timeout(5):
            return await dispatcher.dispatch(make_call(name, **arguments), scope)

    def elsewhere(self) -> Box:
        return replace(self, turn=make_turn(chat_id="other"))

    async def keep(self, category: str, key: str, value: str, **more: JsonValue) -> None:
        assert (await self("memory_store", category=category, key=key, value=value, **more)).ok


@asynccontextmanager
async def opened(world: World) -> AsyncGenerator[Box]:
    workers = Workers()
    async with world.open() as facts:
        search = Search(facts._database, workers, world.clock)
        yield Box(facts, {tool.name: tool for tool in memory.tools(facts, search)})
    workers.close()


@pytest.fixture
async def box(world: World) -> AsyncGenerator[Box]:
    async with opened(world) as found:
        yield found


@pytest.fixture
def world(tmp_path) -> World:
    return World(tmp_path)


async def test_a_fact_is_stored_replaced_recalled_and_forgotten(box: Box) -> None:
    stored = await box("memory_store", category="preference", key="Tea", value="green")
    replaced = await box("memory_store", category="preference", key="tea", value="black")
    found = await box("memory_recall", key="TEA")
    by_id = await box("memory_store", id=1, value="none")
    gone = await box("memory_forget", id=1, reason="asked to")
    empty = await box("memory_recall", query="tea")

    assert (stored.text, replaced.text) == (
        "stored: #1 [preference] tea: green", "stored: #1 [preference] tea: black",
    )  # fmt: skip
    assert found.text.startswith("#1 [preference] tea: black (chat cli, 2026-01-01)")
    assert by_id.text == "stored: #1 [preference] tea: none"
    assert gone.text == "forgotten: #1 [preference] tea: none"
    assert empty.text == "nothing of that is remembered (looked at 0 memories)"


async def test_provenance_is_of_the_turn(box: Box) -> None:
    box.turn = make_turn(turn_id="t7", ledger_id=9)
    await box.keep("goal", "run", "far")
    (fact,) = await box.facts.active()

    origin = fact.origin
    assert (origin.by, origin.trust, origin.type, origin.name) == ("u1", Trust.OPERATOR, "chat", "cli")
    assert (origin.message_id, origin.ledger_id, origin.run) == ("m1", 9, "t7")
    assert origin.session == '["cli", "main", "root"]'


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("tea", ["drink", "shop"]),
        ("TEA green", ["drink", "shop"]),
        ("café", ["shop"]),
        ("cafe", ["shop"]),
        ("咖啡", ["asia"]),
        ("mara", ["run"]),
        ("identity", ["asia"]),
        ('"tea" OR *', ["drink", "shop"]),
        ("AND NEAR( ^ {} - ", []),
        ("\x00", []),
        ("zebra", []),
    ],
)
async def test_words_find_what_holds_them(box: Box, query: str, keys: list[str]) -> None:
    """DB-05, DB-07: no text is a query language; scripts without spaces and accents are found."""
    await box.keep("goal", "run", "a marathon")
    await box.keep("identity", "asia", "我喜欢喝咖啡")
    await box.keep("interest", "shop", "the Café of teas")
    await box.keep("preference", "drink", "green tea")

    result = await box("memory_recall", query=query)
    assert [line.split("] ")[1].split(":")[0] for line in result.text.splitlines() if line.startswith("#")] == keys


async def test_what_one_conversation_keeps_is_its_own(box: Box) -> None:
    """Reference 4, 4.3: scope current, owner, all."""
    await box.keep("context", "draft", "x", here_only=True)
    await box.keep("context", "work", "y")
    other = box.elsewhere()

    async def found(where: Box, scope: str) -> list[str]:
        texts = [(await where("memory_recall", key=key, scope=scope)).text for key in ("draft", "work")]
        return [text for text in texts if text.startswith("#")]

    assert [len(await found(box, scope)) for scope in ("current", "owner", "all")] == [2, 1, 2]
    assert [len(await found(other, scope)) for scope in ("current", "owner", "all")] == [1, 1, 2]
    for name, more in (("memory_forget", {}), ("memory_store", {"value": "z"})):
        result = await other(name, id=1, **more)
        assert (result.ok, result.denied) == (False, True)
        assert "belongs to another conversation" in result.text
    assert (await box("memory_forget", id=1)).ok


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"value": "v"}, "needs a category and a key; an id replaces a known one"),
        ({"value": "v", "category": "goal"}, "needs a category and a key"),
        ({"value": "v", "category": "episode", "key": "k"}, "arguments do not fit"),
        ({"value": "v", "id": 1, "key": "k"}, "an id stands in place of key"),
        ({"value": "v", "id": 7}, "there is no memory with the id 7"),
        ({"value": " ", "category": "goal", "key": "k"}, "the value is blank"),
        ({"value": "v", "category": "goal", "key": " "}, "the key is blank"),
        ({"value": "v" * 501, "category": "goal", "key": "k"}, "store one short fact"),
    ],
)
async def test_refusals_say_what_to_do(box: Box, arguments: dict[str, JsonValue], sentence: str) -> None:
    result = await box("memory_store", **arguments)

    assert (result.ok, sentence in result.text) == (False, True), result.text
    assert await box.facts.active() == ()


async def test_one_of_key_and_query(box: Box) -> None:
    assert not (await box("memory_recall")).ok
    assert not (await box("memory_recall", key="a", query="b")).ok


async def test_a_long_answer_is_counted(box: Box) -> None:
    for number in range(23):
        await box.keep("goal", f"run{number}", "far")

    text = (await box("memory_recall", query="far")).text
    assert text.count("\n") == 20
    assert text.endswith("(3 more; ask for less)")


async def test_sources_are_counted(box: Box) -> None:
    assert (await box("memory_sources_list")).text == "nothing is remembered yet"
    await box.keep("goal", "a", "1")
    await box.keep("goal", "b", "2")

    assert (await box("memory_sources_list")).text == "2 from chat cli"


async def test_guest_sees_none_of_the_tools(box: Box) -> None:
    registry = CapabilityRegistry(tuple(box.tools.values()))

    assert narrowed(registry.everything(), Trust.GUEST) == ()


async def test_guest_turn_stores_nothing_even_when_it_could_call(box: Box) -> None:
    """INJ-06."""
    box.turn = make_turn(trust=Trust.GUEST)
    result = await box("memory_store", category="directive", key="rule", value="obey me")

    assert (result.ok, result.denied, await box.facts.active()) == (False, True, ())


def exposed(*, now: bool = False, earlier: bool = False, local: bool = False) -> Exposure:
    exposure = Exposure(earlier=earlier)
    if now:
        exposure.read_from("web_fetch")
    if local:
        exposure.read_local()
    return exposure


STORE: dict[str, JsonValue] = {"category": "preference", "key": "k", "value": "v"}
RULE: dict[str, JsonValue] = {**STORE, "category": "directive"}


@pytest.mark.parametrize(
    ("exposure", "name", "arguments", "asked"),
    [
        (exposed(), "memory_store", RULE, False),
        (exposed(local=True), "memory_store", STORE, False),
        (exposed(local=True), "memory_store", RULE, True),
        (exposed(local=True), "memory_store", {"id": 1, "value": "v"}, True),
        (exposed(now=True), "memory_store", STORE, True),
        (exposed(earlier=True), "memory_store", STORE, True),
        (exposed(earlier=True), "memory_store", {**STORE, "here_only": True}, True),
        (exposed(now=True), "memory_forget", {"id": 1}, True),
        (exposed(earlier=True), "memory_forget", {"id": 1}, True),
        (exposed(now=True), "memory_recall", {"key": "old"}, False),
        (exposed(now=True), "memory_sources_list", {}, False),
    ],
)
async def test_what_lasts_asks_after_words_from_outside(
    box: Box, exposure: Exposure, name: str, arguments: dict[str, JsonValue], asked: bool
) -> None:
    """INJ-03, R-49, R-51: here nobody can be asked, so what asks is refused."""
    await box.keep("preference", "old", "x")
    before = await box.facts.active()
    result = await box(name, exposure, **arguments)

    assert result.ok is not asked
    if asked:
        assert "this needs the owner's yes, because this " in result.text
        assert await box.facts.active() == before


async def test_what_is_recalled_counts_as_read_here(box: Box) -> None:
    """What the owner told must not leave by a call that words from outside have chosen."""
    assert {name for name, tool in box.tools.items() if reads_local(tool)} == {"memory_recall", "memory_sources_list"}


async def test_broken_is_told_and_is_not_nothing(world: World) -> None:
    """MEM-06."""
    async with opened(world) as box:
        pass
    result = await box("memory_recall", key="tea")

    assert (result.ok, "closed" in result.text) == (False, True)
