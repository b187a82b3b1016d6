"""The one way in which the sandbox's policy changes while the daemon runs: /grant, /revoke, /sandbox and the tool.

`propose` works out what a change would do and touches nothing. `apply` works it out again, compares seals where
something opens (what only closes needs no yes, so it is never too late for it), writes config.toml, puts the running
sandbox on the new policy and leaves a record in grants/. Whoever calls decides whether the owner must be asked first:
`Proposal.widens`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel

from fermix.agent.approvals import MOST_TEXT_CHARS, ApprovalRequest
from fermix.agent.sandbox.changes import SECTION, Change, Proposal, Target
from fermix.agent.sandbox.helper_values import Passed, look_up
from fermix.agent.sandbox.report import explain, report
from fermix.agent.sandbox.sandbox import Sandbox
from fermix.agent.sandbox.settings import SandboxSettings
from fermix.agent.sandbox.settled import gains, refused, settled
from fermix.clock import Clock
from fermix.config.edit import ConfigEditor
from fermix.config.load import load
from fermix.errors import NeedsOperator
from fermix.home import Home, write_atomic
from fermix.native.confine import Kernel
from fermix.protocol.sandbox import Explained, SandboxStatus
from fermix.visible import fenced
from fermix.workers import Workers

log = logging.getLogger(__name__)


class Policy:
    """Owner of changes to the policy; one at a time."""

    def __init__(
        self, sandbox: Sandbox, home: Home, sections: Mapping[str, type[BaseModel]], workers: Workers, clock: Clock
    ) -> None:
        self._sandbox = sandbox
        self._home = home
        self._sections = sections
        self._workers = workers
        self._clock = clock
        self._changing = asyncio.Lock()
        self._changed: Callable[[], None] = _tell_nobody

    @property
    def sandbox(self) -> Sandbox:
        return self._sandbox

    def tell(self, changed: Callable[[], None]) -> None:
        """Call this after each change, on the loop: tools are built from the policy."""
        self._changed = changed

    async def walls(self) -> str:
        """Say in words what this system holds of a command's walls."""
        return await self._workers.run(self._sandbox.walls)

    async def kernel(self) -> Kernel:
        """Say the same as facts."""
        return await self._workers.run(self._sandbox.kernel)

    async def status(self) -> SandboxStatus:
        """Tell what the policy is now."""
        return await self._workers.run(report, self._sandbox)

    async def explain(self, path: str, cwd: Path | None = None) -> Explained:
        """Say whether tools may touch a path; `cwd` is the folder that the owner speaks from."""
        return await self._workers.run(explain, self._sandbox, path, cwd)

    async def look_up(self, name: str) -> Passed:
        """Look one variable up as for a command of the owner's."""
        return await look_up(await self._workers.run(self._sandbox.wanted_anywhere, (name,)))

    async def propose(self, change: Change) -> Proposal:
        """Work out what a change would do. Raises: Refused with the reason when it must not or need not be done."""
        return await self._workers.run(self._propose, change)

    async def reread(self) -> None:
        """Take the policy that stands in config.toml. Raises: ConfigError, and the one in use stays."""
        async with self._changing:
            await self._workers.run(self._reread)

    def approval_request(self, proposal: Proposal, by: str, reason: str = "") -> ApprovalRequest:
        """Make the question that stands before this change. Raises: Refused when it is too long to be shown whole."""
        text = proposal.question(reason)
        if len(text) > MOST_TEXT_CHARS:
            raise refused("this is too long to show to the owner whole; use a shorter reason or path")

        async def carry_out(seal: str) -> str:
            applied = await self.apply(proposal, seal, by)
            return f"Done.\n\n{fenced(applied.diff())}"

        return ApprovalRequest(text, proposal.seal, carry_out)

    async def apply(self, proposal: Proposal, seal: str, by: str) -> Proposal:
        """Do what was proposed, if it still is exactly what `seal` stands for, or opens nothing. `by` wanted it.

        Whoever wants it may be gone before it is done; the tools are built from it all the same.

        Raises: Refused when anything is different by now, ConfigError, NeedsOperator, Unavailable.
        """
        loop = asyncio.get_running_loop()

        def tell_afterwards(_applied: Proposal) -> None:
            with suppress(RuntimeError):  # the loop has ended, and nobody builds tools any more
                loop.call_soon_threadsafe(self._changed)

        async with self._changing:
            applied = await self._workers.hand_over(self._apply, tell_afterwards, proposal.change, seal, by)
        self._changed()
        return applied

    def _propose(self, change: Change) -> Proposal:
        try:
            after, target = settled(change, self._sandbox)
        except OSError as error:
            raise refused(f"this path cannot be looked at: {error.strerror}") from error
        return self._compared(change, target, self._sandbox.settings, after)

    def _compared(
        self, change: Change, target: Target | None, before: SandboxSettings, after: SandboxSettings
    ) -> Proposal:
        old, new = self._sandbox.roots_under(before), self._sandbox.roots_under(after)
        old_paths, new_paths = {root.path for root in old.standing()}, {root.path for root in new.standing()}
        gained = [path for path in new_paths if not any(path.is_relative_to(held) for held in old_paths)]
        admits_request = before.mode == "strict" and after.mode == "standard"
        return Proposal(
            change, target, before, after,
            opened=tuple(sorted(str(path) for path in new_paths - old_paths)),
            closed=tuple(sorted(str(path) for path in old_paths - new_paths)),
            widens=bool(gained) or admits_request or gains(before, after, self._sandbox.variables),
        )  # fmt: skip

    def _apply(self, change: Change, seal: str, by: str) -> Proposal:
        proposal = self._propose(change)
        if proposal.widens and proposal.seal != seal:
            raise refused("something has changed since you were asked, so nothing was done; ask again")
        editor = ConfigEditor(self._home, self._sections)  # refuses a file that changes from here on
        if self._written() != proposal.before:
            raise NeedsOperator(
                f"[{SECTION}] in {self._home.config} was changed by hand and is not in use yet",
                advice="restart Fermix, then ask again",
            )
        record = self._record(proposal, by)
        try:
            editor.apply(proposal.written())
        except BaseException:
            record.unlink(missing_ok=True)
            raise
        self._sandbox.use(proposal.after)
        log.info("sandbox changed by %s: %s", by, proposal.diff().replace("\n", "; "))
        return proposal

    def _reread(self) -> None:
        self._sandbox.use(self._written())

    def _written(self) -> SandboxSettings:
        return load(self._home, {}, self._sections).section(SECTION, SandboxSettings)

    def _record(self, proposal: Proposal, by: str) -> Path:
        now = self._clock.now()
        facts = {
            "at": now.isoformat(),
            "by": by,
            "change": type(proposal.change).__name__,
            "target": None if proposal.target is None else proposal.target.path,
            "seal": proposal.seal,
            "before": proposal.before.model_dump(),
            "after": proposal.after.model_dump(),
        }
        path = self._home.grants / f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}.json"
        try:
            write_atomic(path, json.dumps(facts, indent=2).encode())
        except OSError as error:
            raise NeedsOperator(
                f"nothing was changed, since {path.parent} cannot take the record of it: {error.strerror}",
                advice="free space or make the folder writable",
            ) from error
        return path


def _tell_nobody() -> None:
    """Where no tools are built, as on the command line."""
