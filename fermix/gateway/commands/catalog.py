"""Every slash command, one line each."""

from __future__ import annotations

from fermix.gateway.commands import help as help_command
from fermix.gateway.commands import new, stop, whoami

COMMANDS = (
    help_command.COMMAND,
    new.COMMAND,
    stop.COMMAND,
    whoami.COMMAND,
)
