"""The sandbox's status in words, for a chat and for a terminal. Foreign characters are spelled out."""

from __future__ import annotations

from fermix.protocol.sandbox import CommandRow, SandboxStatus
from fermix.visible import spelled


def status_lines(status: SandboxStatus) -> list[str]:
    """Tell everything, as plain lines."""
    network = "open to your own commands" if status["network"] else "closed to every command"
    lines = [f"mode: {status['mode']}", f"workspace: {spelled(status['workspace'])}"]
    lines += [f"open: {spelled(root['path'])} ({root['source']})" for root in status["roots"]]
    lines += [f"blocked: {spelled(path)}" for path in status["blocked"]]
    lines += [f"walls of commands: {status['walls']}", f"network: {network}"]
    lines += [f"variables: {line}" for line in variable_lines(status)]
    return lines + [f"commands: {line}" for line in command_lines(status)]


def short(status: SandboxStatus) -> str:
    """Say it in one paragraph of Markdown, for a chat."""
    grants = sum(root["source"] == "grant" for root in status["roots"])
    variables, commands = len(status["variables"]), sum(row["program"] is not None for row in status["commands"])
    more = [
        f"{count} {word if count == 1 else f'{word}s'}"
        for count, word in ((grants, "granted folder"), (variables, "allowed variable"), (commands, "command"))
        if count
    ]
    network = "" if status["network"] else " Their network is closed."
    return f"Mode `{status['mode']}`, {', '.join(more) or 'nothing granted'}. Commands: {status['walls']}.{network}"


def variable_lines(status: SandboxStatus) -> list[str]:
    """List the variables that commands get besides those of every command, as plain lines."""
    lines = [f"mode: {status['env_mode']}"]
    lines += [f"{row['name']}: {spelled(row['state'])}" for row in status["variables"]]
    lines += [f"{name}: denied" for name in status["denied"]]
    return lines


def command_lines(status: SandboxStatus) -> list[str]:
    """List the programs that are tools of their own, as plain lines."""
    presets = ", ".join(status["presets"]) or "none"
    lines = [f"profile: {status['profile']}", f"presets: {presets}"]
    if status["presets"] and status["profile"] == "bare":
        lines.append("presets are offered once the profile is assistant or extended")
    lines += [f"run_{row['name']}: {spelled(_told(row))}" for row in status["commands"]]
    return lines


def _told(row: CommandRow) -> str:
    gets = f", gets {', '.join(row['pass_env'])}" if row["pass_env"] else ""
    problem = f"; {row['problem']}" if row["program"] is not None and row["problem"] else row["problem"]
    return f"{row['program'] or ''}{gets if row['program'] else ''}{problem}"
