"""run_NAME: one program of the owner's choice with arguments, no shell. One tool for each command that is on.

The program was found once, when the tool was built, and that file is what runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonObject, JsonValue, ToolResult, valid_text
from fermix.agent.sandbox import Sandbox
from fermix.agent.sandbox.commands import why_refused
from fermix.agent.sandbox.profiles import Offered, enabled, offered
from fermix.agent.sandbox.programs import on_disk
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
    own = OwnCommand(command, sandbox, workers, runner)
    fixed = f" It is called as `{shlex.join((settings.command, *settings.args))}` with your arguments behind that."
    return Capability(
        name=f"run_{command.name}",
        description=(settings.description or f"Run {command.name}.") + fixed,
        parameters=PARAMETERS,
        kind=Kind.BUILTIN,
        policy=PolicyClass.EXEC,
        owner_only=True,
        run=own.run,
        category="command",
        timeout_s=settings.timeout_ms / 1_000 + BESIDE_S,
        asks=asks,
        acts_in=own.acts_in,
        acts_on=own.acts_on,
    )


class OwnCommand:
    """The tool of one command."""

    def __init__(self, command: Offered, sandbox: Sandbox, workers: Workers, runner: CommandRunner) -> None:
        self._command = command
        self._sandbox = sandbox
        self._workers = workers
        self._runner = runner

    async def acts_in(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> str:
        """Say where it runs, and which program with which arguments of the owner's. Raises: as the runner's."""
        line = shlex.join((str(self._command.program), *self._command.settings.args))
        return f"{await self._runner.acts_in(arguments, context)}, where it runs: {line}"

    async def acts_on(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> str:
        """Say what the folder and the program are on disk. Raises: as the runner's."""
        folder = await self._runner.acts_on(arguments, context)
        program = Path(str(self._command.program))
        return f"{folder} {await self._workers.run(partial(on_disk, program, is_program=True))}"

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
