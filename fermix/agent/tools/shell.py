"""shell: run one command to its end. For operators only; the sandbox chooses where it starts, not what it reads."""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonValue, ToolResult, valid_text
from fermix.agent.sandbox import Sandbox
from fermix.agent.sandbox.commands import why_refused
from fermix.agent.sandbox.run import CommandRunner
from fermix.trust import PolicyClass
from fermix.workers import Workers

DEFAULT_TIMEOUT_MS = 30_000
MOST_TIMEOUT_MS = 120_000


def tools(sandbox: Sandbox, workers: Workers) -> tuple[Capability, ...]:
    """Build the tool."""
    return (
        Capability(
            name="shell",
            description="Run a shell command and return what it prints. It cannot ask questions.",
            parameters={
                "type": "object",
                "properties": {
                    "command": {"type": "string"},
                    "working_dir": {"type": "string", "description": "folder to run in, default: the current one"},
                    "timeout_ms": {"type": "integer", "minimum": 1, "maximum": MOST_TIMEOUT_MS},
                },
                "required": ["command"],
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.EXEC,
            owner_only=True,
            run=Shell(sandbox, workers).run,
            category="system",
            when_to_use="for everything that no other tool does: programs, git, tests, counting, dates",
        ),
    )


class Shell:
    """The tool itself."""

    def __init__(self, sandbox: Sandbox, workers: Workers) -> None:
        self._runner = CommandRunner(sandbox, workers)
        self._program = shutil.which("bash") or "/bin/sh"  # models write bash; a system without it has only sh

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        command, folder = str(arguments["command"]), arguments.get("working_dir")
        timeout_ms = arguments.get("timeout_ms", DEFAULT_TIMEOUT_MS)
        if (reason := why_refused(command)) is not None:
            return ToolResult(False, f"refused in every mode: this {reason}", denied=True)
        if "\0" in command or valid_text(command) != command:
            return ToolResult(False, "a command cannot hold a NUL character or half a surrogate pair")
        timeout_s = timeout_ms / 1_000 if isinstance(timeout_ms, int) else None
        argv = [self._program, "-c", command]
        return await self._runner.run(argv, context.turn, folder=str(folder) if folder else None, timeout_s=timeout_s)
