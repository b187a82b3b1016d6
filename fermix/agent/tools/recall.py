"""tool_result_recall: read back a result of this turn that was shortened to fit the window.

It knows the turn's own results only, and those end with the turn. Words from outside come back framed.
"""

from __future__ import annotations

from collections.abc import Mapping

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.results import RECALL, unframed
from fermix.trust import PolicyClass

DEFAULT_CHARS = 16_000
MOST_CHARS = 50_000


def tools() -> tuple[Capability, ...]:
    """Build the tool."""
    return (
        Capability(
            name=RECALL,
            description="Read a result again that was shortened to fit.",
            parameters={
                "type": "object",
                "properties": {
                    "call_id": {"type": "string", "description": "as the shortened result names it"},
                    "offset": {"type": "integer", "minimum": 0, "description": "first character, from 0"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_CHARS},
                },
                "required": ["call_id"],
                "additionalProperties": False,
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_ONLY,
            owner_only=True,
            run=recall,
            when_to_use="when a shortened result left out what you need",
            outside=False,
            failure_modes=("a result of an earlier message is gone; call its tool again",),
        ),
    )


async def recall(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
    """Return a part of one original, and say where the next one begins."""
    original = context.originals.get(str(arguments["call_id"]))
    if original is None:
        return ToolResult(False, "no shortened result of this turn has this call_id; call the tool again instead")
    foreign = unframed(original)
    text = original if foreign is None else foreign[1]
    start, count = _number(arguments, "offset", 0), _number(arguments, "limit", DEFAULT_CHARS)
    part, end = text[start : start + count], min(start + count, len(text))
    more = f"\n[characters {start} to {end} of {len(text)}; go on with offset {end}]" if end < len(text) else ""
    return ToolResult(True, part + more, outside=foreign is not None)


def _number(arguments: Mapping[str, JsonValue], name: str, default: int) -> int:
    value = arguments.get(name, default)
    return value if isinstance(value, int) else default
