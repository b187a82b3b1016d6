"""tool_search, tool_describe and tool_call: the way to tools whose schemas are not in the request.

All three look only at what the turn itself can call; a name that does not exist and one that is not for this caller
are answered with the same words. What a plugin or a server says about its tools is framed as words from outside.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from fermix.agent.capability import Capability, Kind, RunTool, ToolContext
from fermix.agent.deferral import TOOL_CALL, deferrable
from fermix.agent.model import JsonObject, JsonValue, ToolResult
from fermix.agent.ranking import ranked
from fermix.agent.registry import BRIDGES
from fermix.config.model import Settings
from fermix.errors import NotAllowed
from fermix.trust import PolicyClass

DEFAULT_MATCHES = 5
MOST_MATCHES = 20
DESCRIPTION_CHARS = 400
NAME_CHARS = 64

SECTION = "fermix_core.tools.tool_search"
NAME: JsonObject = {"type": "string", "minLength": 1, "description": "its whole name"}
MISUSED = (
    f'{TOOL_CALL} takes {{"name": "the tool\'s name", "arguments": {{…}}}}, with the arguments as one object that fits '
    "the schema which tool_describe shows. The three bridge tools are called by themselves, not through it."
)


class ToolSearchSettings(Settings):
    """`[fermix_core.tools.tool_search]`."""

    enabled: bool = True
    """False puts the schema of every tool into every request."""


def tools(settings: ToolSearchSettings) -> tuple[Capability, ...]:
    """Build the three tools; none when every schema is to be shown."""
    if not settings.enabled:
        return ()
    return (
        _bridge(
            "tool_search",
            "Find tools that are not listed here, by words of their names and descriptions.",
            {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "minLength": 1, "maxLength": 500},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_MATCHES},
                },
                "required": ["query"],
                "additionalProperties": False,
            },
            search,
            when_to_use="before you say that you have no tool for something",
        ),
        _bridge(
            "tool_describe",
            "Show the parameters of a tool that is not listed here.",
            {"type": "object", "properties": {"name": NAME}, "required": ["name"], "additionalProperties": False},
            describe,
            when_to_use="before the first tool_call of a tool",
        ),
        _bridge(
            TOOL_CALL,
            "Call a tool that is not listed here.",
            {
                "type": "object",
                "properties": {"name": NAME, "arguments": {"type": "object", "description": "by its own schema"}},
                "required": ["name"],
                "additionalProperties": True,
            },
            explain_call,
            when_to_use="to run what tool_search found",
        ),
    )


async def search(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
    """Answer a query with the names of deferred tools, the best first."""
    query, limit = str(arguments["query"]), arguments.get("limit", DEFAULT_MATCHES)
    available = deferrable(context.tools.values())
    best = ranked(query, available)[: limit if isinstance(limit, int) else DEFAULT_MATCHES]
    matches: list[JsonValue] = [
        {"name": tool.name, "source": tool.source, "description": tool.description[:DESCRIPTION_CHARS]} for tool in best
    ]
    found: JsonObject = {"query": query, "total_available": len(available), "matches": matches}
    return ToolResult(True, json.dumps(found, ensure_ascii=False), outside=bool(best))


async def describe(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
    """Show one tool with its whole schema. Raises: NotAllowed."""
    name = str(arguments["name"])
    tool = context.tools.get(name)
    if tool is None or name in BRIDGES:
        raise NotAllowed(name[:NAME_CHARS])
    shown: JsonObject = {
        "name": name,
        "source": tool.source,
        "description": tool.description,
        "parameters": tool.parameters,
    }
    return ToolResult(True, json.dumps(shown, ensure_ascii=False), outside=tool.foreign)


async def explain_call(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
    """Say how tool_call is used. A call that names another tool never comes here: the loop makes it that tool's."""
    return ToolResult(False, MISUSED)


def _bridge(name: str, description: str, parameters: JsonObject, run: RunTool, *, when_to_use: str) -> Capability:
    return Capability(
        name=name,
        description=description,
        parameters=parameters,
        kind=Kind.BUILTIN,
        policy=PolicyClass.READ_ONLY,
        owner_only=False,
        run=run,
        when_to_use=when_to_use,
        outside=False,
    )
