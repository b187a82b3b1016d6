"""run_NAME: one program of the owner's choice with arguments, no shell. One tool for each command that is on.

The program was found once, when the tool was built, and that file is what runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import cast

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonObject, JsonValue, ToolResult, valid_text
from fermix.agent.sandbox import Sandbox
from fermix.agent.sandbox.commands import why_refused
from fermix.agent.sandbox.profiles import Offered, enabled, offered
from fermix.agent.sandbox.run import WHERE_AND_HOW, CommandRunner, asks
from fermix.trust import PolicyClass
from fermix.workers import Workers

MOST_ARGUMENTS = 100
MOST_PROMPT_CHARS = 100_000
BESIDE_S = 30.0  # for what stands around the run itself: helpers, walls, the sweep

PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "args": {"type": "array", "items": {"type": "string"}, "maxItems": MOST_ARGUMENTS},
        "prompt": {
            "type": "string",
            "maxLength": MOST_PROMPT_CHARS,
            "description": "one last argument, for programs that take a task in words",
        },
        **WHERE_AND_HOW,
    },
    "additionalProperties": False,
}


def tools(sandbox: Sandbox, workers: Workers) -> tuple[Capability, ...]:
    """Build one tool for each command whose program is there."""
    found = offered(sandbox.settings.commands, sandbox.search_path)
    return tuple(_tool(command, sandbox, workers) for command in found if command.program is not None)


def _tool(command: Offered, sandbox: Sandbox, workers: Workers) -> Capability:
    settings, runner = command.settings, CommandRunner(sandbox, workers)
    fixed = f" It is called as `{shlex.join((settings.command, *settings.args))}` with your arguments behind that."
    return Capability(
        name=f"run_{command.name}",
        description=(settings.description or f"Run {command.name}.") + fixed,
        parameters=PARAMETERS,
        kind=Kind.BUILTIN,
        policy=PolicyClass.EXEC,
        owner_only=True,
        run=OwnCommand(command, sandbox, workers, runner).run,
        category="command",
        timeout_s=settings.timeout_ms / 1_000 + BESIDE_S,
        asks=asks,
        acts_in=runner.acts_in,
    )


class OwnCommand:
    """The tool of one command."""

    def __init__(self, command: Offered, sandbox: Sandbox, workers: Workers, runner: CommandRunner) -> None:
        self._command = command
        self._sandbox = sandbox
        self._workers = workers
        self._runner = runner

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        name, settings = self._command.name, self._command.settings
        if enabled(self._sandbox.settings.commands).get(name) != settings:  # the turn began before it was closed
            return ToolResult(False, "the owner has closed or changed this command meanwhile", denied=True)
        stated = cast("Sequence[str]", arguments.get("args", ()))  # the schema has checked it
        line = shlex.join((settings.command, *settings.args, *stated))
        if (reason := await self._workers.run(why_refused, line)) is not None:
            return ToolResult(False, f"refused in every mode: this {reason}", denied=True)
        prompt = arguments.get("prompt")
        argv = [str(self._command.program), *settings.args, *stated, *([str(prompt)] if prompt else [])]
        if any("\0" in part or valid_text(part) != part for part in argv):
            return ToolResult(False, "an argument cannot hold a NUL character or half a surrogate pair")
        return await self._runner.run(
            argv, arguments, context, timeout_s=settings.timeout_ms / 1_000, needs=settings.pass_env
        )
