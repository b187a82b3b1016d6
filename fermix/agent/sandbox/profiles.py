"""Programs that are tools of their own: the presets that come with Fermix, and what the owner defines.

Such a tool runs one program with arguments, never a shell. It can do nothing that `shell` could not; it spares a small
model the quoting, and it gets the variables that it needs and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fermix.agent.sandbox.name_rules import why_no_command
from fermix.agent.sandbox.programs import NoProgram, find_program
from fermix.agent.sandbox.roots import real
from fermix.agent.sandbox.settings import CommandSettings, CommandsSettings, Preset

AGENT_MS = 600_000  # another agent works on a request for minutes

PRESETS: Mapping[Preset, Mapping[str, CommandSettings]] = {
    "ai_tools": {
        "codex": CommandSettings(
            command="codex", args=("exec",), pass_env=("OPENAI_API_KEY",), timeout_ms=AGENT_MS,
            description="Hand a task to the coding agent Codex.",
        ),
        "claude_code": CommandSettings(
            command="claude", args=("--print",), pass_env=("ANTHROPIC_API_KEY",), timeout_ms=AGENT_MS,
            description="Hand a task to the coding agent Claude Code.",
        ),
    },
    "dev_tools": {
        "git": CommandSettings(command="git", description="Run git."),
        "gh": CommandSettings(command="gh", description="Run gh, GitHub's own program."),
        "make": CommandSettings(command="make", timeout_ms=AGENT_MS, description="Run make."),
    },
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Offered:
    """A command that is on. `program` is its whole path, None when it cannot be run: `problem` says why."""

    name: str
    settings: CommandSettings
    program: Path | None
    problem: str = ""


def enabled(commands: CommandsSettings) -> dict[str, CommandSettings]:
    """Return every command that is on, by name; the owner's own one comes before a preset's."""
    presets = () if commands.profile == "bare" else commands.presets
    found = {name: command for preset in presets for name, command in PRESETS[preset].items()}
    return found | {name: command for name, command in commands.own.items() if command.enabled}


def offered(commands: CommandsSettings, search_path: str) -> tuple[Offered, ...]:
    """Find the program of each command that is on, once. Blocking, shortly."""
    return tuple(_found(name, command, search_path) for name, command in enabled(commands).items())


def _found(name: str, settings: CommandSettings, search_path: str) -> Offered:
    try:
        program = find_program(settings.command, search_path)
    except NoProgram as error:
        return Offered(name, settings, None, str(error))
    problem = why_no_command(str(real(program)))
    return Offered(name, settings, program) if problem is None else Offered(name, settings, None, problem)
