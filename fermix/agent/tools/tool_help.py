"""tool_help: what a tool is for and how it fails, at more length than a request has room for.

For guests too; it knows only what its caller sees, and a name beyond that is answered like one that does not exist.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonValue, ToolResult
from fermix.errors import NotAllowed
from fermix.trust import PolicyClass

NAME_CHARS = 64


def tools() -> tuple[Capability, ...]:
    """Build the tool."""
    return (
        Capability(
            name="tool_help",
            description="Explain one tool (examples, what can go wrong), or list all tools.",
            parameters={"type": "object", "properties": {"name": {"type": "string"}}, "additionalProperties": False},
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_ONLY,
            owner_only=False,
            run=explain,
            when_to_use="when a tool failed and its answer does not say why, or somebody asks what you can do",
            outside=False,
            examples=('{"name": "file_read"}',),
        ),
    )


async def explain(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
    """Explain one tool, or list all that the caller sees. Raises: NotAllowed."""
    name = arguments.get("name")
    if not isinstance(name, str) or not name:
        return ToolResult(True, "\n".join(_line(tool) for tool in context.tools.values()))
    tool = context.tools.get(name)
    if tool is None:
        raise NotAllowed(name[:NAME_CHARS])
    return ToolResult(True, "\n".join(_lines(tool)), outside=tool.foreign)


def _line(tool: Capability) -> str:
    """Words of plugins and servers stay out of the list, so that it needs no frame."""
    if tool.foreign:
        return f"- {tool.name} ({tool.source or tool.kind})"
    return f"- {tool.name}: {tool.when_to_use or tool.description}"


def _lines(tool: Capability) -> list[str]:
    stated = (
        ("When to use: ", tool.when_to_use),
        ("Needs: ", tool.requires_setup),
        ("Example: ", "\nExample: ".join(tool.examples)),
        ("Can fail: ", "\nCan fail: ".join(tool.failure_modes)),
    )
    heading = f"{tool.name} ({tool.policy}{f', from {tool.source}' if tool.source else ''})"
    schema = f"Parameters: {json.dumps(tool.parameters, ensure_ascii=False)}"
    return [heading, tool.description, *(label + text for label, text in stated if text), schema]
