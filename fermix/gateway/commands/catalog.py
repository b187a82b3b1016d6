"""Every slash command, one line each."""

from __future__ import annotations

from fermix.gateway.commands import compact, confirm, later, new, sandbox, stop, usage, whoami
from fermix.gateway.commands import help as help_command

COMMANDS = (
    help_command.COMMAND,
    whoami.COMMAND,
    new.COMMAND,
    stop.COMMAND,
    confirm.CONFIRM,
    confirm.DENY,
    sandbox.GRANT,
    sandbox.REVOKE,
    sandbox.SANDBOX,
    usage.COMMAND,
    compact.COMMAND,
    later.BACKGROUND,
    later.TASKS,
    later.PAUSE,
    later.RESUME,
    later.ULTRA,
)
