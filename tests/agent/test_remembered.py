"""What the facts do to the prompt of real turns: shown to the owner, stable, changed at once, never a guest's."""

from __future__ import annotations

from pathlib import Path

from fermix.agent.memory.facts import Facts, Remembered
from fermix.agent.memory.search import Search
from fermix.agent.tools import memory
from fermix.store import Database
from fermix.trust import Trust
from fermix.workers import Workers
from tests.agent.conftest import World
from tests.fakes.router import ScriptedRouter, calls, says
from tests.fakes.turns import make_call, make_turn


async def test_what_is_remembered_is_in_the_next_prompt_and_equal_until_it_changes(
    world: World, tmp_path: Path
) -> None:
    """Reference 4, 3.2: a change invalidates the cached context, and without one no byte of the prompt changes."""
    workers, home = Workers(), world.home

    async with Database.open(tmp_path / "facts.db") as database:
        facts = Facts(database, home, workers, world.clock, lambda: agent.invalidate())
        script = [
            calls(make_call("memory_store", category="identity", key="home", value="Hue")), says("kept"), says("b"),
            says("c"), calls(make_call("memory_forget", 2, id=1)), says("gone"), says("e"), says("g"),
        ]  # fmt: skip
        router = ScriptedRouter(script)
        async with world.open(
            router, *memory.tools(facts, Search(database, workers, world.clock)), remembered=facts.remembered
        ) as agent:
            for number in range(5):
                await world.run(agent, make_turn(turn_id=f"t{number}", chat_id="one"))
            guest = make_turn(turn_id="t9", trust=Trust.GUEST, chat_id="two")
            await world.run(agent, guest)
    workers.close()

    prompts = [request.system for request in router.requests]
    shown = ["- home: Hue" in "".join(system) for system in prompts]
    assert shown == [False, False, True, True, True, True, False, False]
    assert prompts[2] == prompts[3] == prompts[4]
    assert prompts[2][-2].endswith("</memory-context>")
    assert prompts[2][-1].startswith("Today is")
    assert prompts[0] == prompts[6]


async def test_a_memory_that_cannot_be_read_is_said_and_tried_again(world: World) -> None:
    """MEM-06: broken and empty are two different things, and a turn goes on."""
    answers = [Remembered(problem="the disk is gone"), Remembered(user="- home: Hue")]

    async def remembered() -> Remembered:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    router = ScriptedRouter([says("a"), says("b"), says("c")])
    async with world.open(router, remembered=remembered) as agent:
        for number in range(3):
            await world.run(agent, make_turn(turn_id=f"t{number}"))

    told = ["".join(request.system) for request in router.requests]
    assert ["Your memory cannot be read just now" in text for text in told] == [True, False, False]
    assert "the disk is gone" not in told[0]
    assert ["- home: Hue" in text for text in told] == [False, True, True]
