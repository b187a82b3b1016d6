"""session_search: find what was said in any conversation of the owner.

It is the owner's: what it reads are all conversations. What only the owner and the agent said comes back as it is; when
a guest, a tool or words from outside are among the lines, the whole result counts as from outside and is framed. It
counts as local as well, like what is recalled, so that no later call sends it out unasked (docs/decisions/0023).
"""

from __future__ import annotations

from collections.abc import Mapping

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.memory.search import UNFINISHED, Search
from fermix.agent.model import JsonValue, ToolResult
from fermix.trust import PolicyClass

MOST_QUERY_CHARS = 1_000
DEFAULT_HITS = 8
MOST_HITS = 20


def tools(search: Search) -> tuple[Capability, ...]:
    """Build the tool."""

    async def run(arguments: Mapping[str, JsonValue], _context: ToolContext) -> ToolResult:
        limit = arguments.get("limit", DEFAULT_HITS)
        found = await search.find(str(arguments["query"]), limit if isinstance(limit, int) else DEFAULT_HITS)
        lines = [hit.line for hit in found.hits] or ["nothing that was said holds any of these words"]
        unfinished = [] if found.whole else [UNFINISHED]
        return ToolResult(True, "\n".join([*lines, *unfinished]), outside=not all(hit.own for hit in found.hits))

    return (
        Capability(
            name="session_search",
            description="Find what was said in earlier conversations, by words, the best matches first.",
            parameters={
                "type": "object",
                "properties": {
                    "query": {"type": "string", "minLength": 1, "maxLength": MOST_QUERY_CHARS},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_HITS},
                },
                "required": ["query"],
                "additionalProperties": False,
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_ONLY,
            owner_only=True,
            run=run,
            category="memory",
            when_to_use="when the owner refers to something said earlier that is not in this conversation",
            examples=('{"query": "hotel in Porto"}',),
            failure_modes=("nothing is found: try other words for the same thing, names above all",),
        ),
    )
