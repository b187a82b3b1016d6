"""The one way in which the sandbox's policy changes while the daemon runs: /grant, /revoke, /sandbox and the tool.

`propose` works out what a change would do and touches nothing. `apply` works it out again, compares seals, writes
config.toml, puts the running sandbox on the new policy and leaves a record in grants/. Whoever calls decides whether
the owner must be asked first: `Proposal.widens`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from fermix.agent.approvals import MOST_TEXT_CHARS, ApprovalRequest
from fermix.agent.sandbox.changes import Change, GrantPath, Proposal, RevokePath, SetMode
from fermix.agent.sandbox.roots import Roots, real
from fermix.agent.sandbox.sandbox import Sandbox
from fermix.agent.sandbox.settings import SandboxSettings
from fermix.clock import Clock
from fermix.config.edit import Changes, ConfigEditor
from fermix.config.load import load
from fermix.errors import NeedsOperator, Refused
from fermix.home import Home, write_atomic
from fermix.native.confine import Kernel
from fermix.visible import fenced, spelled
from fermix.workers import Workers

log = logging.getLogger(__name__)

SECTION = "sandbox"


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

    @property
    def sandbox(self) -> Sandbox:
        return self._sandbox

    async def walls(self) -> str:
        """Say in words what this system holds of a command's walls."""
        return await self._workers.run(self._sandbox.walls)

    async def kernel(self) -> Kernel:
        """Say the same as facts."""
        return await self._workers.run(self._sandbox.kernel)

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
            raise _refused("this is too long to show to the owner whole; use a shorter reason or path")

        async def carry_out(seal: str) -> str:
            applied = await self.apply(proposal, seal, by)
            return f"Done.\n\n{fenced(applied.diff())}"

        return ApprovalRequest(text, proposal.seal, carry_out)

    async def apply(self, proposal: Proposal, seal: str, by: str) -> Proposal:
        """Do what was proposed, if it still is exactly what `seal` stands for. `by` names who wanted it.

        Raises: Refused when anything is different by now, ConfigError, NeedsOperator, Unavailable.
        """
        async with self._changing:
            return await self._workers.run(self._apply, proposal.change, seal, by)

    def _propose(self, change: Change) -> Proposal:
        before = self._sandbox.settings
        roots = self._sandbox.roots_under(before)
        try:
            match change:
                case GrantPath(path):
                    return self._grant(change, before, _folder_to_open(roots, path))
                case RevokePath(path):
                    folder = _granted(roots, before, path)
                    kept = tuple(text for text in before.allowed_roots if _real_text(roots, text) != folder)
                    return self._compared(change, folder, None, before, _with_roots(before, kept))
                case SetMode(mode):
                    if mode == before.mode:
                        raise _refused(f"the mode is {mode} already")
                    return self._compared(change, None, None, before, before.model_copy(update={"mode": mode}))
        except OSError as error:
            raise _refused(f"this path cannot be looked at: {error.strerror}") from error

    def _grant(self, change: GrantPath, before: SandboxSettings, folder: Path) -> Proposal:
        state = folder.stat()
        after = _with_roots(before, (*before.allowed_roots, str(folder)))
        return self._compared(change, str(folder), (state.st_dev, state.st_ino), before, after)

    def _compared(
        self,
        change: Change,
        folder: str | None,
        identity: tuple[int, int] | None,
        before: SandboxSettings,
        after: SandboxSettings,
    ) -> Proposal:
        old, new = self._sandbox.roots_under(before), self._sandbox.roots_under(after)
        old_paths, new_paths = {root.path for root in old.standing()}, {root.path for root in new.standing()}
        gained = [path for path in new_paths if not any(path.is_relative_to(held) for held in old_paths)]
        admits_request = before.mode == "strict" and after.mode == "standard"
        return Proposal(
            change, folder, identity, before, after,
            opened=tuple(sorted(str(path) for path in new_paths - old_paths)),
            closed=tuple(sorted(str(path) for path in old_paths - new_paths)),
            widens=bool(gained) or admits_request,
        )  # fmt: skip

    def _apply(self, change: Change, seal: str, by: str) -> Proposal:
        proposal = self._propose(change)
        if proposal.seal != seal:
            raise _refused("something has changed since you were asked, so nothing was done; ask again")
        editor = ConfigEditor(self._home, self._sections)  # refuses a file that changes from here on
        if self._written() != proposal.before:
            raise NeedsOperator(
                f"[{SECTION}] in {self._home.config} was changed by hand and is not in use yet",
                advice="restart Fermix, then ask again",
            )
        record = self._record(proposal, by)
        try:
            editor.apply(_changes(proposal))
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
            "folder": proposal.folder,
            "seal": proposal.seal,
            "before": proposal.before.model_dump(),
            "after": proposal.after.model_dump(),
        }
        path = self._home.grants / f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}.json"
        write_atomic(path, json.dumps(facts, indent=2).encode())
        return path


def _with_roots(settings: SandboxSettings, roots: tuple[str, ...]) -> SandboxSettings:
    return settings.model_copy(update={"allowed_roots": roots})


def _changes(proposal: Proposal) -> Changes:
    if proposal.before.mode != proposal.after.mode:
        return {(SECTION, "mode"): proposal.after.mode}
    return {(SECTION, "allowed_roots"): proposal.after.allowed_roots}


def _folder_to_open(roots: Roots, path: str) -> Path:
    stated = roots.expand(path)
    if not stated.is_absolute():
        raise _refused("give the whole path, from / or ~/ on")
    folder = real(stated)
    shown = spelled(str(folder))
    if not os.fsencode(folder).decode("utf-8", "replace") == str(folder):
        raise _refused(f'"{shown}" is not named in UTF-8, so config.toml cannot hold it')
    if not folder.is_dir():
        raise _refused(f'"{shown}" is not a folder')
    if (reason := roots.why_closed(folder) or roots.why_never_granted(folder)) is not None:
        raise _refused(f'"{shown}" cannot be granted: {reason}')
    if any(folder.is_relative_to(root.path) for root in roots.standing()):
        raise _refused(f'"{shown}" is open already')
    return folder


def _granted(roots: Roots, settings: SandboxSettings, path: str) -> str:
    stated = roots.expand(path)
    wanted = str(real(stated)) if stated.is_absolute() else path
    if wanted not in {_real_text(roots, text) for text in settings.allowed_roots}:
        raise _refused(f'there is no grant for "{spelled(path)}"; `/sandbox explain` lists them')
    return wanted


def _real_text(roots: Roots, text: str) -> str:
    return str(real(roots.expand(text)))


def _refused(reason: str) -> Refused:
    return Refused(reason, user_text=reason[0].upper() + reason[1:] + ".")
