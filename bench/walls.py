"""What the walls of a command cost: a `sh -c true` behind them against a bare one, both started as the daemon does."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, p50
from fermix.agent.sandbox.walls import Confinement
from fermix.native.child import run_child
from fermix.native.confine import Behind

RUNS = 150
COMMAND = ("sh", "-c", "true")


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


async def _medians(confinement: Confinement, workspace: Path) -> tuple[float, float, float]:
    walls = [confinement.behind("bench", [workspace], [], network=network) for network in (True, False)]
    rounds = [[await _run_s(workspace, behind) for behind in (None, *walls)] for _ in range(RUNS)]
    bare, walled, offline = (p50(series) for series in zip(*rounds, strict=True))
    return bare, walled, offline


async def _run_s(workspace: Path, behind: Behind | None) -> float:
    began_at = time.perf_counter()
    await run_child(COMMAND, cwd=workspace, env={"PATH": os.defpath}, behind=behind)
    return time.perf_counter() - began_at
