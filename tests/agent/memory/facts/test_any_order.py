"""Any order of storing, replacing, forgetting, restoring, rolling back, rebuilding, reopening, against a plain model.

The model keeps every fact as a value and the trail as a list, and knows nothing of SQL, files or caches.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fermix.agent.memory.facts import CATEGORIES, Facts
from fermix.agent.memory.facts.fact import OF_THE_OWNER
from fermix.agent.memory.facts.render import SHAPES, render
from fermix.agent.memory.facts.rows import State
from fermix.errors import Unusable
from tests.agent.memory.facts.world import HERE, OWNER, World, draft

KEYS = ("home", "tea", "咖啡")
VALUES = ("one", "two", "</fermix>", "\U0001f37a" * 80)
PLACES = {"USER.md": "owner", "MEMORY.md": "agent"}

Operation = tuple[str, tuple]
NUMBER = st.integers(1, 8)
OPERATIONS = st.one_of(
    st.tuples(
        st.just("store"),
        st.tuples(st.sampled_from([*CATEGORIES]), st.sampled_from(KEYS), st.sampled_from(VALUES), st.booleans()),
    ),
    st.tuples(st.just("replace"), st.tuples(NUMBER, st.sampled_from(VALUES))),
    st.tuples(st.just("forget"), st.tuples(NUMBER)),
    st.tuples(st.just("restore"), st.tuples(NUMBER, st.none() | st.integers(1, 20))),
    st.tuples(st.just("roll_back"), st.tuples(st.sampled_from([*SHAPES]), NUMBER)),
    st.tuples(st.just("write"), st.tuples(st.sampled_from([*SHAPES]))),
    st.tuples(st.just("remove"), st.tuples(st.sampled_from([*SHAPES]))),
    st.tuples(st.just("rebuild"), st.just(())),
    st.tuples(st.just("reopen"), st.just(())),
)


@dataclass
class Model:
    """What must be remembered. A fact's name is its scope and key; `trail` holds (number, state) in order."""

    names: list[tuple[str, str]] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    trail: list[tuple[int, State]] = field(default_factory=list)

    def store(self, category: str, key: str, value: str, here: bool) -> None:
        kept = CATEGORIES[category]
        name = ("conversation" if here else "owner" if kept in OF_THE_OWNER else "agent", key)
        if name not in self.names:
            self.names.append(name)
            self.states.append(State(kept, "", archived=True))
        self._become(self.names.index(name) + 1, State(kept, value, archived=False))

    def replace(self, number: int, value: str) -> None:
        self._become(number, State(self._state(number).category, value, archived=False))

    def forget(self, number: int) -> None:
        state = self._state(number)
        self._become(number, State(state.category, state.value, archived=True))

    def restore(self, number: int, change: int | None) -> None:
        state = self._state(number)
        mine = [(at, kept) for at, (memory, kept) in enumerate(self.trail, 1) if memory == number]
        if change is not None:
            self._become(number, dict(mine)[change])
        elif state.archived:
            self._become(number, State(state.category, state.value, archived=False))
        else:
            self._become(number, mine[-2][1])

    def roll_back(self, place: str, change: int) -> None:
        for number, name in enumerate(self.names, 1):
            if name[0] == place:
                state = self._state(number)
                then = [kept for memory, kept in self.trail[:change] if memory == number]
                self._become(number, then[-1] if then else State(state.category, state.value, archived=True))

    def known(self) -> set[tuple[int, str, str, State]]:
        return {
            (number, *name, state)
            for number, (name, state) in enumerate(zip(self.names, self.states, strict=True), 1)
        }  # fmt: skip

    def _state(self, number: int) -> State:
        return self.states[number - 1]

    def _become(self, number: int, state: State) -> None:
        if state != self._state(number):
            self.states[number - 1] = state
            self.trail.append((number, state))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(OPERATIONS, max_size=14))
def test_any_order_is_consistent_also_after_reopening(operations: list[Operation]) -> None:
    """Issue 5: any order of store, forget, restore, rebuild is consistent."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_play(World(Path(folder)), operations))


async def _play(world: World, operations: list[Operation]) -> None:
    model = Model()
    rest = iter(operations)
    more = True
    while more:
        more = False
        async with world.open() as facts:
            await _compare(world, facts, model)
            for name, values in rest:
                if name == "reopen":
                    more = True
                    break
                await _do(world, facts, model, name, values)
                await _compare(world, facts, model)
    async with world.open() as facts:
        await _compare(world, facts, model)


async def _do(world: World, facts: Facts, model: Model, name: str, values: tuple) -> None:
    match name, values:
        case "write", (file,):
            world.file(file).write_text("by hand", encoding="utf-8")
        case "remove", (file,):
            world.file(file).unlink(missing_ok=True)
        case "rebuild", _:
            await facts.remembered()
        case "roll_back", (file, number):
            revisions = {one.number: one for one in await facts.revisions(file, 500)}
            if not await _refused(facts.roll_back(file, number)):
                model.roll_back(PLACES[file], revisions[number].change_id)
        case _:
            if not await _refused(_change(facts, name, values)):
                getattr(model, name)(*values)


async def _change(facts: Facts, name: str, values: tuple) -> None:
    match name, values:
        case "store", (category, key, value, here):
            await facts.store(draft(category, key, value, HERE if here else None), OWNER)
        case "replace", (number, value):
            await facts.replace(number, value, None, OWNER, lambda _: True)
        case "forget", (number,):
            await facts.forget(number, OWNER)
        case "restore", (number, change):
            await facts.restore(number, change)


async def _refused(changing: Awaitable[object]) -> bool:
    try:
        await changing
    except Unusable:
        return True
    return False


async def _compare(world: World, facts: Facts, model: Model) -> None:
    rows = await facts.page(0, 500, archived=True)
    active = await facts.active()
    trail = await facts.changes(None, 500)
    assert {
        (row.id, row.place.scope, row.key, State(row.category, row.value, archived=not row.active)) for row in rows
    } == model.known()
    assert sorted(fact.id for fact in active) == [row.id for row in rows if row.active]
    assert set(active) <= set(rows)
    assert [(change.memory_id, change.state) for change in trail][::-1] == model.trail
    assert [change.id for change in trail][::-1] == [*range(1, len(model.trail) + 1)]
    shown = await facts.remembered()
    for name, text in (("USER.md", shown.user), ("MEMORY.md", shown.memory)):
        made = render(SHAPES[name], active).text.strip()
        assert text == made or (text == "by hand" == world.text(name))
        assert not world.file(name).exists() or world.text(name).strip() == text
