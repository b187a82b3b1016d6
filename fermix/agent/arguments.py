"""What a model means by the arguments it wrote. Called by dispatch before they are checked and before anybody is asked.

Only one habit is mended, because it cannot be taken for anything else: an object or a list that was written as the
JSON text of one. Whatever else does not fit the schema is told to the model.
"""

from __future__ import annotations

from dataclasses import replace

from fermix.agent.capability import Capability
from fermix.agent.model import JsonValue, ToolCall
from fermix.agent.providers.fields import load_json

STRUCTURES: dict[JsonValue, type] = {"object": dict, "array": list}


def mended(call: ToolCall, capability: Capability) -> ToolCall:
    """Return the call with texts decoded where the schema of its tool wants an object or a list."""
    properties = capability.parameters.get("properties")
    wanted = properties if isinstance(properties, dict) else {}
    arguments = {name: _decoded(value, wanted.get(name)) for name, value in call.arguments.items()}
    return call if arguments == call.arguments else replace(call, arguments=arguments)


def _decoded(value: JsonValue, schema: JsonValue) -> JsonValue:
    kind = schema.get("type") if isinstance(schema, dict) else None
    structure = STRUCTURES.get(kind) if isinstance(kind, str) else None
    if structure is None or not isinstance(value, str):
        return value
    try:
        decoded = load_json(value)
    except ValueError:
        return value
    return decoded if isinstance(decoded, structure) else value
