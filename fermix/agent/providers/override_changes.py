"""The one way in which the agent can bring about a change of config.toml besides its sandbox: by the owner's yes.

`propose` works out what would change and touches nothing. The question shows all of it; the answer carries out exactly
that or nothing. What must stay true: no setting outside of one section can be named here.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ValidationError

from fermix.agent.approvals import MOST_TEXT_CHARS, ApprovalRequest
from fermix.agent.providers.overrides import NAMES, SECTION, RoutingSettings, primary_provider, why_unfit
from fermix.config.edit import ConfigEditor
from fermix.config.load import load
from fermix.config.model import Config
from fermix.errors import FermixError, Refused
from fermix.home import Home
from fermix.visible import fenced, spelled
from fermix.workers import Workers

log = logging.getLogger(__name__)

Wanted = Mapping[str, str | None]
"""New values by the name of the setting; None takes it back."""


@dataclass(frozen=True, slots=True)
class OverrideProposal:
    """What would change, to the last detail."""

    wanted: Wanted
    before: RoutingSettings
    after: RoutingSettings

    @property
    def seal(self) -> str:
        """A hash over exactly what would be done."""
        facts = [SECTION, self.before.model_dump(), self.after.model_dump()]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def diff(self) -> str:
        """Show the lines of config.toml that go and come, every character spelled out."""
        before, after = self.before.model_dump(), self.after.model_dump()
        changed = [name for name in NAMES if before[name] != after[name]]
        lines = [
            f'{sign} {name} = "{spelled(values[name])}"'
            for name in changed
            for sign, values in (("-", before), ("+", after))
            if values[name] is not None
        ]
        return "\n".join([f"[{SECTION}]", *lines])


class OverrideChanges:
    """Owner of these changes; one at a time. `reload` puts a written configuration into use."""

    def __init__(
        self,
        home: Home,
        sections: Mapping[str, type[BaseModel]],
        workers: Workers,
        reload: Callable[[], Awaitable[object]],
    ) -> None:
        self._home = home
        self._sections = sections
        self._workers = workers
        self._reload = reload
        self._changing = asyncio.Lock()

    async def current(self) -> RoutingSettings:
        """Return what config.toml holds. Raises: ConfigError."""
        return (await self._workers.run(self._written))[RoutingSettings]

    async def propose(self, wanted: Wanted) -> OverrideProposal:
        """Work out a change. Raises: Refused with the reason when it must not or need not be made; ConfigError."""
        return await self._workers.run(self._propose, wanted)

    def approval_request(self, proposal: OverrideProposal, by: str, reason: str) -> ApprovalRequest:
        """Make the question. Raises: Refused when it is too long to be shown whole."""
        shown = "\n".join([f'reason: "{spelled(reason)}"', proposal.diff()])
        text = f"May I change which model works for sub-agents and jobs?\n\n{fenced(shown)}"
        if len(text) > MOST_TEXT_CHARS:
            raise _refused("this is too long to show to the owner whole; use a shorter reason")

        async def carry_out(seal: str) -> str:
            return await self._carry_out(proposal, seal, by)

        return ApprovalRequest(text, proposal.seal, carry_out)

    async def _carry_out(self, proposal: OverrideProposal, seal: str, by: str) -> str:
        """Raises: Refused when anything is different by now, ConfigError, NeedsOperator, Unavailable."""
        async with self._changing:
            await self._workers.run(self._write, proposal.wanted, seal)
        log.info("models of sub-agents and jobs changed by %s: %s", by, proposal.diff().replace("\n", "; "))
        done = f"Done.\n\n{fenced(proposal.diff())}"
        try:
            await self._reload()
        except FermixError as error:
            return f"{done}\n\nIt is written but not in use yet: {error}"
        return done

    def _propose(self, wanted: Wanted) -> OverrideProposal:
        config = self._written()
        before = config[RoutingSettings]
        try:
            after = RoutingSettings.model_validate({**before.model_dump(), **wanted})
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(map(str, first["loc"]))
            raise _refused(f"{at}{': ' if at else ''}{first['msg'].removeprefix('Value error, ')}") from error
        if after == before:
            raise _refused("this is set already; nothing has to be changed")
        if (problem := why_unfit(after, primary=primary_provider(config))) is not None:
            raise _refused(problem)
        return OverrideProposal(dict(wanted), before, after)

    def _write(self, wanted: Wanted, seal: str) -> None:
        editor = ConfigEditor(self._home, self._sections)  # refuses a file that changes from here on
        if self._propose(wanted).seal != seal:
            raise _refused("something has changed since you were asked, so nothing was done; ask again")
        editor.apply({(*SECTION.split("."), name): value for name, value in wanted.items()})

    def _written(self) -> Config:
        return load(self._home, {}, self._sections)


def _refused(reason: str) -> Refused:
    return Refused(reason, user_text=reason)
