"""Facts under SIGKILL: what was told as stored is there again, and no file is half of one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fermix.home import Home
from tests.agent.memory.facts.world import World

CHILD = """
import asyncio, sys
from pathlib import Path
from tests.agent.memory.facts.world import OWNER, World, draft

async def main():
    world = World(Path(sys.argv[1]))
    async with world.open() as facts:
        for number in range(1_000):
            key = f"k{number % 7}"
            fact, _ = await facts.store(draft("identity", key, f"{number} " + "x" * 100), OWNER)
            if number % 3 == 2:
                await facts.forget(fact.id, OWNER)
            print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("seed", range(4))
async def test_what_was_told_as_stored_survives_a_kill(tmp_path: Path, seed: int) -> None:
    """DB-10, for facts: a change is on disk when its call returns."""
    told = _killed_after(tmp_path, random.Random(seed).randint(1, 40))
    world = World(tmp_path)
    async with world.open() as facts:
        active = {fact.key: fact.value.split()[0] for fact in await facts.active()}
        trail = await facts.changes(None, 10_000)
        shown = await facts.remembered()

    last = max(int(change.state.value.split()[0]) for change in trail)
    assert last in (told, told + 1)
    archived = {change.key: change.state.archived for change in trail[::-1]}
    newest = {change.key: change.state.value.split()[0] for change in trail[::-1]}
    assert active == {key: value for key, value in newest.items() if not archived[key]}
    assert shown.user == world.text().strip()
    assert world.execute("PRAGMA integrity_check") == [("ok",)]


def _killed_after(root: Path, lines: int) -> int:
    """Let a child store until it has told so many; the last number that it told."""
    Home(root / "home").prepare()
    environ = {**os.environ, "PYTHONPATH": os.getcwd()}  # noqa: PTH109 - as the child is to see it
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root)], stdout=subprocess.PIPE, env=environ, text=True
    ) as child:
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(lines)]
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().splitlines()
    numbers = [int(line) for line in (*told, *rest) if line.strip()]
    assert numbers, "the child told nothing"
    return numbers[-1]
