"""What the sandbox is at this moment, for the owner: names and reasons, never a value. Blocking, shortly."""

from __future__ import annotations

from pathlib import Path

from fermix.agent.sandbox.profiles import Offered, offered
from fermix.agent.sandbox.roots import real
from fermix.agent.sandbox.sandbox import Sandbox
from fermix.errors import OutsideSandbox
from fermix.protocol.sandbox import CommandRow, Explained, SandboxStatus

WHY_OPEN = {
    "workspace": "it lies in the workspace",
    "launch": "it lies in the folder that the daemon was started from",
    "request": "it lies in the folder that you speak from, and is open to what you ask from there",
    "grant": "it lies in a folder that you granted",
    "home": "the mode is open, and it lies in your home",
}


def report(sandbox: Sandbox) -> SandboxStatus:
    """Tell all that `sandbox status` shows."""
    settings = sandbox.settings
    env, commands = settings.env, settings.commands
    return {
        "mode": settings.mode,
        "workspace": str(sandbox.standing()[0].path),
        "roots": [{"path": str(root.path), "source": root.source} for root in sandbox.standing()],
        "blocked": list(settings.blocked_roots),
        "walls": sandbox.walls(),
        "network": settings.network,
        "env_mode": env.mode,
        "variables": [
            {"name": name, "state": sandbox.variables.state(name, env)} for name in sandbox.variables.names(env)
        ],
        "denied": list(env.deny),
        "profile": commands.profile,
        "presets": list(commands.presets),
        "commands": [_row(command, sandbox) for command in offered(commands, sandbox.search_path)],
    }


def explain(sandbox: Sandbox, path: str, cwd: Path | None) -> Explained:
    """Say whether tools of the owner's turns may touch a path, and why. `cwd` is where the owner speaks from."""
    roots = sandbox.roots_under(sandbox.settings)
    stated = roots.expand(path)
    if not stated.is_absolute():
        return {"path": path, "open": False, "why": "this is no whole path, from / or ~/ on"}
    try:
        found = real(stated)
        root = roots.admit(found, roots.standing() if cwd is None else roots.with_request(cwd))
    except OutsideSandbox as refusal:
        closed = roots.why_closed(Path(refusal.path))
        hint = "" if closed else "; `fermix grant path FOLDER` opens another"
        return {"path": refusal.path, "open": False, "why": f"{refusal.reason}{hint}"}
    return {"path": str(found), "open": True, "why": WHY_OPEN[root.source]}


def _row(command: Offered, sandbox: Sandbox) -> CommandRow:
    env = sandbox.settings.env
    needed = [name for name in command.settings.pass_env if not sandbox.variables.passes(name, env)]
    problem = command.problem or ("" if not needed else f"needs {', '.join(needed)}, which is not allowed")
    program = None if command.program is None else str(command.program)
    return {"name": command.name, "program": program, "pass_env": list(command.settings.pass_env), "problem": problem}
