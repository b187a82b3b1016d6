"""What clients may ask of the sandbox. The same functions answer the verbs where no daemon runs: cli/offline.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from fermix.agent.sandbox import Change, Policy
from fermix.agent.sandbox.change_words import read
from fermix.daemon.params import Params, Result, checked
from fermix.daemon.socket import Call, RequestError
from fermix.protocol.methods import Code
from fermix.protocol.sandbox import ApplyChange, ExplainPath, GetVariable, ProposeChange

BY = "the owner at a terminal"


Answer = Callable[[Policy, Params], Awaitable[Result]]


def sandbox_methods(policy: Policy) -> Mapping[str, Callable[[Call], Awaitable[Result]]]:
    """Return the methods by name."""

    def bound(answer: Answer) -> Callable[[Call], Awaitable[Result]]:
        return lambda call: answer(policy, call.params)

    return {name: bound(answer) for name, answer in ANSWERS.items()}


async def _status(policy: Policy, _params: Params) -> Result:
    return dict(await policy.status())


async def _explain(policy: Policy, params: Params) -> Result:
    wish = checked(ExplainPath, params)
    cwd = wish.get("cwd")
    return dict(await policy.explain(wish["path"], None if cwd is None else Path(cwd)))


async def _variable(policy: Policy, params: Params) -> Result:
    wish = checked(GetVariable, params)
    name = wish["name"]
    found = await policy.look_up(name)
    value = found.variables.get(name)
    shown = value if wish["reveal"] else None
    return {"name": name, "problem": found.missing.get(name, ""), "chars": len(value or ""), "value": shown}


async def _propose(policy: Policy, params: Params) -> Result:
    proposal = await policy.propose(_change(checked(ProposeChange, params)["words"]))
    text = policy.approval_request(proposal, BY).text if proposal.widens else proposal.diff()
    return {"seal": proposal.seal, "widens": proposal.widens, "text": text}


async def _apply(policy: Policy, params: Params) -> Result:
    wish = checked(ApplyChange, params)
    proposal = await policy.propose(_change(wish["words"]))
    applied = await policy.apply(proposal, wish["seal"], BY)
    return {"text": applied.diff()}


def _change(words: Sequence[str]) -> Change:
    """Raises: RequestError for words that mean nothing, Refused for a name of former times."""
    change = read(words)
    if change is None:
        raise RequestError(Code.INVALID_PARAMS, "this is no change that I know")
    return change


ANSWERS: Mapping[str, Answer] = {
    "sandbox.status": _status,
    "sandbox.explain": _explain,
    "sandbox.variable": _variable,
    "sandbox.propose": _propose,
    "sandbox.apply": _apply,
}
