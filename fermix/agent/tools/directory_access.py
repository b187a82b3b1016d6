"""request_directory_access: ask the owner to open a folder. The turn does not wait for the answer.

Offered only to a turn that may ask: an operator's, attended, at the top, with a live way back. On a chat channel
the owner's yes lets the same request run again by itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from fermix.agent.approvals import Approvals, Seam
from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.sandbox import GrantPath, Policy, Sandbox
from fermix.agent.turn import Turn
from fermix.errors import OutsideSandbox
from fermix.trust import PolicyClass
from fermix.workers import Workers

MOST_REASON_CHARS = 300
NAME = "request_directory_access"


def tools(sandbox: Sandbox, policy: Policy, approvals: Approvals, workers: Workers) -> tuple[Capability, ...]:
    """Build the tool."""
    return (
        Capability(
            name=NAME,
            description="Ask the owner for access to a folder that the sandbox denies. Then end your turn.",
            parameters={
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1, "maxLength": 4096, "description": "the whole path"},
                    "reason": {"type": "string", "minLength": 1, "maxLength": MOST_REASON_CHARS},
                },
                "required": ["path", "reason"],
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.EXTERNAL_API,
            owner_only=True,
            run=DirectoryAccess(sandbox, policy, approvals, workers).run,
            category="system",
            when_to_use="when a path that you need was refused as outside the allowed folders",
            failure_modes=("without a yes within a minute the folder stays closed",),
            asks_owner=True,
            outside=False,
        ),
    )


class DirectoryAccess:
    """The tool itself."""

    def __init__(self, sandbox: Sandbox, policy: Policy, approvals: Approvals, workers: Workers) -> None:
        self._sandbox = sandbox
        self._policy = policy
        self._approvals = approvals
        self._workers = workers

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        path, reason, turn = str(arguments["path"]), str(arguments["reason"]), context.turn
        if turn.seam is None or not turn.may_ask:
            return ToolResult(False, "the owner cannot be asked in this turn", denied=True)
        if await self._workers.run(self._is_open, turn, path):
            return ToolResult(True, "this folder is open to you already; go on")
        return await self._ask(GrantPath(path), reason, turn.seam, context)

    async def _ask(self, change: GrantPath, reason: str, seam: Seam, context: ToolContext) -> ToolResult:
        proposal = await self._policy.propose(change)
        request = self._policy.approval_request(proposal, f"{seam.origin.user_id} on {seam.origin.channel}", reason)
        await self._approvals.put(request, seam, context.port.send)
        then = "this request then runs again by itself" if seam.resume else "after that the owner must ask again"
        return ToolResult(True, f"the owner was asked and has a minute to approve; {then}. End your turn now.")

    def _is_open(self, turn: Turn, path: str) -> bool:
        try:
            return self._sandbox.find(turn, path).path.is_dir()
        except OutsideSandbox:
            return False
