"""model_routing_config: show which models work for sub-agents and jobs, and propose another. It writes nothing.

A proposal is put to the owner with every line that would change; only the yes changes anything (rule R-44). The model
that answers the owner cannot be named, nor any setting outside of that one section.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fermix.agent.approvals import Approvals
from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonObject, JsonValue, ToolResult
from fermix.agent.providers.catalog import PROVIDERS
from fermix.agent.providers.override_changes import OverrideChanges
from fermix.agent.providers.overrides import NAMES, SECTION
from fermix.trust import PolicyClass

MOST_REASON_CHARS = 300
_VALUE: JsonObject = {"type": ["string", "null"], "maxLength": 200}


def tools(changes: OverrideChanges, approvals: Approvals) -> tuple[Capability, ...]:
    """Build the tool."""
    return (
        Capability(
            name="model_routing_config",
            description="Show which models sub-agents and jobs use, or propose others; the owner decides.",
            parameters={
                "type": "object",
                "properties": {
                    "action": {"type": "string", "enum": ["get", "propose"]},
                    "changes": {
                        "type": "object",
                        "properties": dict.fromkeys(NAMES, _VALUE),
                        "additionalProperties": False,
                        "minProperties": 1,
                        "description": "new values; null takes one back",
                    },
                    "reason": {"type": "string", "minLength": 1, "maxLength": MOST_REASON_CHARS},
                },
                "required": ["action"],
                "additionalProperties": False,
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_WRITE,
            owner_only=True,
            run=ModelRouting(changes, approvals).run,
            category="system",
            when_to_use="when the owner wants another model for sub-agents or jobs; never for your own model",
            examples=('{"action": "propose", "changes": {"cron_model": "gpt-5.4-mini"}, "reason": "jobs are simple"}',),
            failure_modes=("a model of one provider cannot be asked for at another",),
            asks_owner=True,
            outside=False,
        ),
    )


class ModelRouting:
    """The tool itself."""

    def __init__(self, changes: OverrideChanges, approvals: Approvals) -> None:
        self._changes = changes
        self._approvals = approvals

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        if arguments["action"] == "get":
            return await self._show()
        wanted, reason = arguments.get("changes"), arguments.get("reason")
        if not isinstance(wanted, dict) or not isinstance(reason, str):
            return ToolResult(False, "a proposal needs changes and a reason; action get shows what is set")
        values = {name: value if isinstance(value, str) else None for name, value in wanted.items()}
        return await self._propose(values, reason, context)

    async def _show(self) -> ToolResult:
        stated = (await self._changes.current()).model_dump()
        lines = [f"{name} = {stated[name]}" if stated[name] else f"{name} is not set" for name in NAMES]
        known = [f"{spec.id}: {', '.join(model.id for model in spec.models) or 'any'}" for spec in PROVIDERS]
        unset = "What is not set is as in this conversation. Models that are known, by provider:"
        return ToolResult(True, "\n".join([f"[{SECTION}]", *lines, unset, *known]))

    async def _propose(self, wanted: Mapping[str, str | None], reason: str, context: ToolContext) -> ToolResult:
        turn = context.turn
        if turn.seam is None or not turn.may_ask:
            return ToolResult(False, "the owner cannot be asked in this turn", denied=True)
        proposal = await self._changes.propose(wanted)
        by = f"{turn.seam.origin.user_id} on {turn.seam.origin.channel}"
        request = self._changes.approval_request(proposal, by, reason)
        await self._approvals.put(request, replace(turn.seam, resume=None, after_yes=""), context.port.send)
        return ToolResult(
            True, "the owner was asked and has a minute to approve. Nothing is changed yet. End your turn."
        )
