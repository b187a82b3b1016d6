"""shell: run one command to its end. For operators only; the sandbox chooses where it starts, not what it reads."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonValue, ToolResult, valid_text
from fermix.agent.sandbox import Sandbox
from fermix.agent.sandbox.commands import why_refused
from fermix.agent.sandbox.run import WHERE_AND_HOW, CommandRunner, asks
from fermix.trust import PolicyClass
from fermix.workers import Workers

DEFAULT_TIMEOUT_MS = 30_000
MOST_TIMEOUT_MS = 120_000
MOST_COMMAND_CHARS = 131_071  # Linux starts nothing with a longer argument, so it need not be judged either
TOO_LONG = "the command could not be started: Argument list too long; write it into a file and run that"


def tools(sandbox: Sandbox, workers: Workers) -> tuple[Capability, ...]:
    """Build the tool."""
    runner = CommandRunner(sandbox, workers)
    return (
        Capability(
            name="shell",
            description="Run a shell command and return what it prints. It cannot ask questions.",
            parameters={
                "type": "object",
                "properties": {
                    "command": {"type": "string"},
                    "timeout_ms": {"type": "integer", "minimum": 1, "maximum": MOST_TIMEOUT_MS},
                    **WHERE_AND_HOW,
                },
                "required": ["command"],
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.EXEC,
            owner_only=True,
            run=Shell(runner, workers).run,
            category="system",
            when_to_use="for everything that no other tool does: programs, git, tests, counting, dates",
            examples=('{"command": "wc -l *.csv"}', '{"command": "make test", "timeout_ms": 120000}'),
            failure_modes=(
                "folders outside the allowed ones are not there for a command",
                "what it leaves running in the background is ended with it",
            ),
            asks=asks,
            acts_in=runner.acts_in,
            acts_on=runner.acts_on,
        ),
    )


class Shell:
    """The tool itself."""

    def __init__(self, runner: CommandRunner, workers: Workers) -> None:
        self._runner = runner
        self._workers = workers
        self._program = shutil.which("bash") or "/bin/sh"  # models write bash; a system without it has only sh

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        command, timeout_ms = str(arguments["command"]), arguments.get("timeout_ms", DEFAULT_TIMEOUT_MS)
        if len(command) > MOST_COMMAND_CHARS:
            return ToolResult(False, TOO_LONG)
        if (reason := await self._workers.run(why_refused, command)) is not None:
            return ToolResult(False, f"refused in every mode: this {reason}", denied=True)
        if "\0" in command or valid_text(command) != command:
            return ToolResult(False, "a command cannot hold a NUL character or half a surrogate pair")
        timeout_s = timeout_ms / 1_000 if isinstance(timeout_ms, int) else None
        argv = [self._program, "-c", command]
        return await self._runner.run(argv, arguments, context, timeout_s=timeout_s)
