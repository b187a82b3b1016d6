"""Whatever stands in the database when a process dies, every stored message is found after the next start."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fermix.agent.memory.search import index
from tests.agent.memory.search.test_search import PLAIN, Box, fill_unseen, index_all, opened

STEPS = st.lists(st.sampled_from(["write", "new", "old", "empty", "stop"]), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(unseen=st.integers(0, 500), steps=STEPS)
def test_in_any_order_of_writes_chunks_rebuilds_and_stops_every_row_is_found(unseen: int, steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_play(Path(folder), unseen, steps))


async def _play(folder: Path, unseen: int, steps: list[str]) -> None:
    written = unseen
    async with opened(folder) as box:
        await box.database.run(lambda connection: fill_unseen(connection, unseen) if unseen else None)
    for part in _parts(steps):
        async with opened(folder) as box:
            for step in part:
                if step == "write":
                    text = f"word{written}"
                    await box.database.run(lambda connection, text=text: connection.execute(PLAIN, (text,)))
                    written += 1
                else:
                    await box.database.run({"new": index.add_new, "old": index.add_old, "empty": index.empty}[step])
    async with opened(folder) as box:
        await index_all(box.database)
        for number in {0, written // 2, written - 1} if written else set[int]():
            assert await box.texts(f"word{number}") == [f"word{number}"]
        await check_all_in(box, written)


async def check_all_in(box: Box, rows: int) -> None:
    """The index tells nothing without being asked for a word, and each row has one of its own."""
    for start in range(0, rows, 250):
        words = [f'"word{number}"' for number in range(start, min(start + 250, rows))]
        found = await box.database.read(
            "SELECT COUNT(*), MIN(rowid) FROM messages_fts WHERE messages_fts MATCH ?", (" OR ".join(words),)
        )
        assert found == [(len(words), start + 1)]


def _parts(steps: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for step in steps:
        if step == "stop":
            parts.append([])
        else:
            parts[-1].append(step)
    return parts


CHILD = """
import asyncio, sys
from pathlib import Path
from tests.agent.memory.search.test_search import fill_unseen, opened

async def main():
    async with opened(Path(sys.argv[1])) as box:
        if sys.argv[2] == "fill":
            await box.database.run(lambda connection: fill_unseen(connection, 3_000))
        print("ready", flush=True)
        await box.search.run(lambda: None)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_catch_up_that_is_killed_again_and_again_goes_on_where_it_was(tmp_path: Path) -> None:
    for turn in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), "fill" if turn == 0 else "go on"],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        )
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        asyncio.run(asyncio.sleep(0.02 * turn))
        child.send_signal(signal.SIGKILL)
        child.wait(5)
        child.stdout.close()

    async def all_found() -> None:
        async with opened(tmp_path) as box:
            await index_all(box.database)
            await check_all_in(box, 3_000)
            assert await box.texts("word1500") == ["word1500"]

    asyncio.run(all_found())
