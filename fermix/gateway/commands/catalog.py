"""Every slash command, one line each."""

from __future__ import annotations

from fermix.gateway.commands import help as help_command
from fermix.gateway.commands import later, new, stop, whoami

COMMANDS = (
    help_command.COMMAND,
    whoami.COMMAND,
    new.COMMAND,
    stop.COMMAND,
    later.COMPACT,
    later.BACKGROUND,
    later.TASKS,
    later.PAUSE,
    later.RESUME,
    later.ULTRA,
)
