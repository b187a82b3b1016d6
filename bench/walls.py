"""What the walls of a command cost, and how long many commands take to be gone.

A `sh -c true` behind walls against a bare one, both started as the daemon does. Then 500 commands at once, each with a
process in the background, stopped together: until their callers have their answer and nothing of any is left.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from bench.figures import Figure, p50
from fermix.agent.sandbox.walls import Confinement
from fermix.native.child import Limits, run_child
from fermix.native.confine import Behind

RUNS = 150
COMMAND = ("sh", "-c", "true")
CROWD = 500
CROWD_WAIT_S = 60.0


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        confinement = Confinement(Path.home(), Path(folder) / "scratch", os.environ)
        workspace = Path(folder, "workspace").resolve()
        workspace.mkdir()
        bare, walled, offline = asyncio.run(_medians(confinement, workspace))
        form = confinement.kernel().form or "nothing"
        yield Figure("command.bare", bare * 1000, "ms")
        yield Figure(f"command.{form}_ratio", walled / bare, "times a bare command", 3.0)
        yield Figure(f"command.{form}_offline_ratio", offline / bare, "times a bare command", 4.0)
        behind = confinement.behind("bench", [workspace], [], network=True)
        for name, walls in _forms(behind).items():
            stop_s, left = asyncio.run(_stop_a_crowd(workspace, walls))
            yield Figure(f"command.{name}_stop_{CROWD}", stop_s, "s", 2.0)
            yield Figure(f"command.{name}_left_of_{CROWD}", left, "processes", 0)


def _forms(behind: Behind | None) -> dict[str, Behind | None]:
    """Every form that this system has; rules can be held wherever a view can."""
    if behind is None:
        return {"nothing": None}
    return {behind.form: behind, "rules": replace(behind, form="rules")}


async def _medians(confinement: Confinement, workspace: Path) -> tuple[float, float, float]:
    walls = [confinement.behind("bench", [workspace], [], network=network) for network in (True, False)]
    rounds = [[await _run_s(workspace, behind) for behind in (None, *walls)] for _ in range(RUNS)]
    bare, walled, offline = (p50(series) for series in zip(*rounds, strict=True))
    return bare, walled, offline


async def _run_s(workspace: Path, behind: Behind | None) -> float:
    began_at = time.perf_counter()
    await run_child(COMMAND, cwd=workspace, env={"PATH": os.defpath}, behind=behind)
    return time.perf_counter() - began_at


async def _stop_a_crowd(workspace: Path, behind: Behind | None) -> tuple[float, int]:
    """Return how long the end of all took, and how many processes were left then."""
    mark, started = f"600.0{secrets.randbelow(10**12)}", workspace / secrets.token_hex(8)
    started.mkdir()
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_sleep(f"sleep {mark} & echo > {number}; wait", started, behind))
            for number in range(CROWD)
        ]
        async with asyncio.timeout(CROWD_WAIT_S):
            while sum(1 for _ in started.iterdir()) < CROWD:
                await asyncio.sleep(0.05)
        began_at = time.perf_counter()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return time.perf_counter() - began_at, _processes_with(mark.encode())


async def _sleep(script: str, cwd: Path, behind: Behind | None) -> None:
    limits = Limits(timeout_s=None)
    await run_child(("sh", "-c", script), cwd=cwd, env={"PATH": os.defpath}, limits=limits, behind=behind)


def _processes_with(mark: bytes) -> int:
    return sum(mark in _read(path) for path in Path("/proc").glob("[0-9]*/cmdline"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
