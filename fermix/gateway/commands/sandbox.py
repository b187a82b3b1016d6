"""`/grant`, `/revoke` and `/sandbox`: which folders are open. What opens anything is asked first, the rest is done.

All three change the policy in the one way there is, `agent/sandbox/policy.py`.
"""

from __future__ import annotations

from typing import get_args

from fermix.agent.approvals import Origin, Seam
from fermix.agent.sandbox import Change, GrantPath, Mode, RevokePath, SetMode
from fermix.errors import FermixError
from fermix.gateway.command import Command, CommandContext
from fermix.trust import Trust
from fermix.visible import fenced, spelled

USAGE = (
    "Write `/grant path FOLDER`, `/revoke path FOLDER`, `/sandbox status`, `/sandbox explain` or "
    "`/sandbox mode strict|standard|open`."
)
MODES: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}


async def _grant(context: CommandContext) -> None:
    path = _path(context.rest)
    await (_change(context, GrantPath(path)) if path else context.replier.tell(USAGE))


async def _revoke(context: CommandContext) -> None:
    path = _path(context.rest)
    await (_change(context, RevokePath(path)) if path else context.replier.tell(USAGE))


async def _sandbox(context: CommandContext) -> None:
    match context.rest.split():
        case [] | ["status"]:
            await context.replier.tell(await _status(context))
        case ["explain"]:
            await context.replier.tell(_explain(context))
        case ["mode", mode] if mode in MODES:
            await _change(context, SetMode(MODES[mode]))
        case _:
            await context.replier.tell(USAGE)


async def _change(context: CommandContext, change: Change) -> None:
    try:
        answer = await _changed(context, change)
    except FermixError as error:
        answer = error.user_text or "That could not be done; the log has the details."
    if answer is not None:
        await context.replier.tell(answer)


async def _changed(context: CommandContext, change: Change) -> str | None:
    """Do it, or ask first; returns what else to say. Raises: FermixError."""
    policy, origin = context.policy, Origin.of(context.message)
    by = f"{origin.user_id} on {origin.channel}"
    proposal = await policy.propose(change)
    if not proposal.widens:
        applied = await policy.apply(proposal, proposal.seal, by)
        return f"Done.\n\n{fenced(applied.diff())}"
    if context.sender.trust is not Trust.OPERATOR:
        return "This would open more folders, and only the owner of this agent may do that."
    seam = Seam(origin, shared=not context.message.private)
    new = await context.approvals.put(policy.approval_request(proposal, by), seam, context.replier.send)
    return None if new else "I have asked you that already; answer the question above."


def _path(rest: str) -> str:
    """Return the path behind the word "path", spaces inside kept; "" when there is none."""
    word, _, path = rest.strip().partition(" ")
    return path.strip() if word == "path" else ""


async def _status(context: CommandContext) -> str:
    sandbox = context.policy.sandbox
    walls = await context.policy.walls()
    grants = len(sandbox.settings.allowed_roots)
    folders = "folder" if grants == 1 else "folders"
    mode = f"Mode `{sandbox.settings.mode}`, {grants} granted {folders}. Commands: {walls}."
    return f"{mode} `/sandbox explain` lists what is open."


def _explain(context: CommandContext) -> str:
    roots = context.policy.sandbox.standing()
    return "Open to every turn:\n\n" + fenced("\n".join(f"{root.source}: {spelled(str(root.path))}" for root in roots))


GRANT = Command("grant", "open a folder to me: `/grant path FOLDER`", "operator", _grant, in_person=True)
REVOKE = Command("revoke", "close it again: `/revoke path FOLDER`", "operator", _revoke, in_person=True)
SANDBOX = Command("sandbox", "tell or choose which folders are open", "commanders", _sandbox, in_person=True)
