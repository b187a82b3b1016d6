"""Run a command of a turn to its end: behind the turn's walls, with its variables, in a folder that is open to it.

Once words from outside stand before the model a command runs without the network, unless it asks for that; the owner
is then asked first, as for every command of a turn that has read such words itself.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from fermix.agent.capability import ToolContext
from fermix.agent.model import JsonObject, JsonValue, ToolResult
from fermix.agent.risk import why_acting, why_connected
from fermix.agent.sandbox.command_result import ended
from fermix.agent.sandbox.helper_values import look_up
from fermix.agent.sandbox.programs import on_disk
from fermix.agent.sandbox.sandbox import Sandbox
from fermix.agent.turn import Turn
from fermix.errors import Refused, Unusable
from fermix.native.child import Limits, run_child
from fermix.workers import Workers

WHERE_AND_HOW: JsonObject = {
    "working_dir": {"type": "string", "description": "folder to run in, default: the current one"},
    "network": {"type": "boolean", "description": "true if a result says it was closed"},
}
"""The arguments that all tools have in common which run commands."""

OFFLINE = (
    "\n[commands get no network, because words from outside were read here; for one that needs it, call it again with "
    '"network": true, and the owner is asked]'
)


class CommandRunner:
    """What the tools that run commands share."""

    def __init__(self, sandbox: Sandbox, workers: Workers) -> None:
        self._sandbox = sandbox
        self._workers = workers

    async def run(
        self,
        argv: Sequence[str],
        arguments: Mapping[str, JsonValue],
        context: ToolContext,
        *,
        timeout_s: float | None,
        needs: Collection[str] | None = None,
    ) -> ToolResult:
        """Run it where and how the arguments say. `needs` are the only variables that it gets besides the base,
        and it does not run without them; None: all that the owner allows, as far as they have values.
        """
        sandbox, turn, limits = self._sandbox, context.turn, Limits(timeout_s=timeout_s)
        offline = context.exposure.outside and not _wants_network(arguments)
        closed = OFFLINE if offline and sandbox.settings.network else ""
        try:
            cwd, note = await self._workers.run(self._folder, turn, _folder_of(arguments))
            confined = await self._workers.run(partial(sandbox.confined, turn, offline=offline))
            wanted = await self._workers.run(sandbox.wanted, turn, needs)
            passed = await look_up(wanted)
            if needs is not None and passed.missing:
                return ToolResult(False, f"the command was not run, since it needs this:{passed.note()}")
            environment = {**passed.variables, **confined.environment}
            finished = await run_child(argv, cwd=cwd, env=environment, limits=limits, behind=confined.behind)
        except OSError as error:
            return ToolResult(False, _not_started(error))
        except Refused as refusal:
            return ToolResult(False, f"{refusal.user_text or refusal}{closed}", denied=True)
        return ended(finished, limits, note + passed.note() + closed)

    async def acts_in(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> str:
        """Return the folder that it would run in. Raises: OutsideSandbox, Unusable."""
        try:
            found, _ = await self._workers.run(self._folder, context.turn, _folder_of(arguments))
        except OSError as error:
            raise Unusable(_not_started(error)) from error
        return str(found)

    async def acts_on(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> str:
        """Say what this folder is on disk. Raises: as `acts_in`."""
        folder = Path(await self.acts_in(arguments, context))
        return await self._workers.run(partial(on_disk, folder, is_program=False))

    def _folder(self, turn: Turn, folder: str | None) -> tuple[Path, str]:
        """Return where the command starts, and a note when that is not where its operator is."""
        if folder is None:
            found = self._sandbox.working_dir(turn)
            refusal = self._sandbox.why_elsewhere(turn)
            return found, "" if refusal is None else f"\n[this ran in {found}: {refusal.user_text}]"
        found = self._sandbox.find(turn, folder).path
        if not found.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "working_dir is not a folder", str(found))
        return found, ""


def asks(arguments: Mapping[str, JsonValue], context: ToolContext) -> str | None:
    """Say why the owner must agree to a command, None when it is free."""
    if (why := why_acting(context.exposure)) is not None:
        return why
    return why_connected(context.exposure) if _wants_network(arguments) else None


def _wants_network(arguments: Mapping[str, JsonValue]) -> bool:
    return arguments.get("network") is True


def _folder_of(arguments: Mapping[str, JsonValue]) -> str | None:
    folder = arguments.get("working_dir")
    return str(folder) if folder else None


def _not_started(error: OSError) -> str:
    return f"the command could not be started: {error.strerror} ({error.filename})"
