"""`/grant`, `/revoke` and `/sandbox`: what tools may open and what commands get. What opens anything is asked first.

All three change the policy in the one way there is, `agent/sandbox/policy.py`; the words are those of the command line.
"""

from __future__ import annotations

import shlex

from fermix.agent.approvals import Origin, Seam
from fermix.agent.sandbox import Change
from fermix.agent.sandbox.change_words import read
from fermix.agent.sandbox.changes import SetEnv
from fermix.errors import FermixError
from fermix.gateway.command import Command, CommandContext
from fermix.protocol.sandbox_lines import command_lines, short, variable_lines
from fermix.trust import Trust
from fermix.visible import fenced, spelled

USAGE = (
    "Write `/grant path FOLDER`, `/grant env NAME` or `/grant command NAME -- PROGRAM ARGUMENTS`, and `/revoke` "
    "likewise.\n\n"
    "`/sandbox status`, `/sandbox explain` or `/sandbox explain PATH` tell what is open, `/sandbox env` and "
    "`/sandbox commands` what commands get.\n\n"
    "Change it with `/sandbox mode strict|standard|open`, `/sandbox env allow|deny|unset NAME`, "
    "`/sandbox env set NAME -- PROGRAM ARGUMENTS`, `/sandbox commands profile bare|assistant|extended` and "
    "`/sandbox commands enable|disable ai_tools|dev_tools`."
)

NOT_YOURS = "This would open more, and only the owner of this agent may do that."


async def _grant(context: CommandContext) -> None:
    await _change(context, ["grant", *_words(context.rest)])


async def _revoke(context: CommandContext) -> None:
    await _change(context, ["revoke", *_words(context.rest)])


async def _sandbox(context: CommandContext) -> None:
    words = _words(context.rest)
    match words:
        case [] | ["status"]:
            await context.replier.tell(await _status(context))
        case ["explain"]:
            await context.replier.tell(_explain(context))
        case ["explain", path]:
            await context.replier.tell(await _explain_path(context, path))
        case ["env"]:
            await context.replier.tell(_listed(variable_lines(await context.policy.status())))
        case ["commands"] | ["commands", "list"]:
            await context.replier.tell(_listed(command_lines(await context.policy.status())))
        case _:
            await _change(context, ["sandbox", *words])


async def _change(context: CommandContext, words: list[str]) -> None:
    try:
        change = read(words)
        answer = USAGE if change is None else await _changed(context, change)
    except FermixError as error:
        answer = error.user_text or "That could not be done; the log has the details."
    if answer is not None:
        await context.replier.tell(answer)


async def _changed(context: CommandContext, change: Change) -> str | None:
    """Do it, or ask first; returns what else to say. Raises: FermixError."""
    policy, origin = context.policy, Origin.of(context.message)
    if isinstance(change, SetEnv) and context.sender.trust is not Trust.OPERATOR:
        return NOT_YOURS  # nor is which programs there are
    by = f"{origin.user_id} on {origin.channel}"
    proposal = await policy.propose(change)
    if not proposal.widens:
        applied = await policy.apply(proposal, proposal.seal, by)
        return f"Done.\n\n{fenced(applied.diff())}"
    if context.sender.trust is not Trust.OPERATOR:
        return NOT_YOURS
    seam = Seam(origin, shared=not context.message.private)
    new = await context.approvals.put(policy.approval_request(proposal, by), seam, context.replier.send)
    return None if new else "I have asked you that already; answer the question above."


def _words(rest: str) -> list[str]:
    """Split as a shell would; behind "path" stands one path, spaces and all. [""] when quotes do not match."""
    word, _, path = rest.strip().partition(" ")
    if word in ("path", "explain"):
        return [word, *([path.strip()] if path.strip() else [])]
    try:
        return shlex.split(rest)
    except ValueError:
        return [""]


async def _status(context: CommandContext) -> str:
    return f"{short(await context.policy.status())} `/sandbox explain` lists what is open."


def _explain(context: CommandContext) -> str:
    roots = context.policy.sandbox.standing()
    return "Open to every turn:\n\n" + fenced("\n".join(f"{root.source}: {spelled(str(root.path))}" for root in roots))


def _listed(lines: list[str]) -> str:
    return fenced("\n".join(lines))


async def _explain_path(context: CommandContext, path: str) -> str:
    if context.sender.trust is not Trust.OPERATOR:  # where a link leads is nobody else's business
        return "Only the owner of this agent may ask about a path."
    explained = await context.policy.explain(path)
    told = f"{'open' if explained['open'] else 'closed'}: {spelled(explained['why'])}"
    return fenced(f'"{spelled(explained["path"])}"\n{told}')


GRANT = Command(
    "grant", "open a folder to me, or give commands more: `/grant path FOLDER`", "operator", _grant, in_person=True
)
REVOKE = Command("revoke", "take it back: `/revoke path FOLDER`", "operator", _revoke, in_person=True)
SANDBOX = Command("sandbox", "tell or choose what is open to me", "commanders", _sandbox, in_person=True)
