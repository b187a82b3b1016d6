"""The real daemon with more tools than it has yet, so that a turn is as large as those of other agents."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fermix.agent.capability import Capability, ToolContext
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.tools.catalog import ToolDeps, build_tools
from fermix.cli.verbs import run
from fermix.trust import PolicyClass

WORDS = "A tool that stands for one of the tools of an agent, with a description of the usual length. "


async def _nothing(_arguments: Mapping[str, JsonValue], _context: ToolContext) -> ToolResult:
    return ToolResult(ok=True, text="done")


def _tools(deps: ToolDeps) -> Sequence[Capability]:
    own = build_tools(deps)
    wanted = int(os.environ["FERMIX_BENCH_TOOLS"])
    arguments: dict[str, JsonValue] = {
        name: {"type": "string", "description": "An argument of it. " * 4} for name in "abcd"
    }
    stand_in = replace(
        own[0],
        description=WORDS * 5,
        parameters={"type": "object", "properties": arguments, "required": ["a"]},
        policy=PolicyClass.READ_ONLY,
        run=_nothing,
    )
    return [*own, *(replace(stand_in, name=f"tool_{number}") for number in range(wanted - len(own)))]


if __name__ == "__main__":
    raise SystemExit(run.main([], tools=_tools))
