"""Run a command of a turn to its end: behind the turn's walls, with its variables, in a folder that is open to it."""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence
from pathlib import Path

from fermix.agent.model import ToolResult
from fermix.agent.sandbox.ended import ended
from fermix.agent.sandbox.lookup import look_up
from fermix.agent.sandbox.sandbox import Sandbox
from fermix.agent.turn import Turn
from fermix.native.child import Limits, run_child
from fermix.workers import Workers


class CommandRunner:
    """What the tools that run commands share."""

    def __init__(self, sandbox: Sandbox, workers: Workers) -> None:
        self._sandbox = sandbox
        self._workers = workers

    async def run(
        self,
        argv: Sequence[str],
        turn: Turn,
        *,
        folder: str | None,
        timeout_s: float | None,
        needs: Collection[str] | None = None,
    ) -> ToolResult:
        """Run it; `folder` None: where the operator is. `needs` are the only variables that it gets besides the base,
        and it does not run without them; None: all that the owner allows, as far as they have values.
        """
        sandbox, limits = self._sandbox, Limits(timeout_s=timeout_s)
        try:
            cwd, note = await self._workers.run(self._folder, turn, folder)
            confined = await self._workers.run(sandbox.confined, turn)
            wanted = await self._workers.run(sandbox.wanted, turn, needs)
            passed = await look_up(wanted, sandbox.variables.of_helpers())
            if needs is not None and passed.missing:
                return ToolResult(False, f"the command was not run, since it needs this:{passed.note()}")
            environment = {**passed.variables, **confined.environment}
            finished = await run_child(argv, cwd=cwd, env=environment, limits=limits, behind=confined.behind)
        except OSError as error:
            return ToolResult(False, f"the command could not be started: {error.strerror} ({error.filename})")
        return ended(finished, limits, note + passed.note())

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
