"""Tools whose schemas stay out of the request: those of plugins and MCP servers, of which there can be hundreds.

Called when the runtime context is built and by the loop for each call. Three bridges stand for what is left out:
`tool_search` finds, `tool_describe` shows, `tool_call` calls. What must stay true: a turn can call exactly what its
caller sees, deferred or not; a bridge reaches nothing beyond that; and a call through `tool_call` is from then on
the call of the tool that it names, for the loop guard, the trace and every rule of risk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fermix.agent.capability import Capability
from fermix.agent.model import JsonObject, ToolCall
from fermix.agent.providers.fields import load_json
from fermix.agent.registry import BRIDGES

TOOL_CALL = "tool_call"
PARTS = frozenset({"name", "arguments"})  # of a call of it; what stands beside them was meant for the tool, and is lost


@dataclass(frozen=True, slots=True)
class Offer:
    """What a turn can call, by how the model learns of it: `shown` with their schemas, `deferred` by name only."""

    shown: tuple[Capability, ...]
    deferred: tuple[Capability, ...] = ()

    @property
    def tools(self) -> Mapping[str, Capability]:
        """All that can be called, by name."""
        return {tool.name: tool for tool in (*self.shown, *self.deferred)}


def offer(visible: Sequence[Capability], *, inline: bool = False) -> Offer:
    """Part what a caller sees. Without the bridges, with nothing to defer and when `inline` is asked for, as it is
    for a run with a list of allowed tools, every schema is shown and there are no bridges.
    """
    own = tuple(tool for tool in visible if tool.name not in BRIDGES)
    held_back = deferrable(own)
    if inline or not held_back or len(own) + len(BRIDGES) != len(visible):
        return Offer(own)
    return Offer(tuple(tool for tool in visible if not tool.foreign), held_back)


def deferrable(tools: Iterable[Capability]) -> tuple[Capability, ...]:
    """Return those whose schemas can be held back, in their order."""
    return tuple(tool for tool in tools if tool.foreign)


def unwrapped(call: ToolCall, tools: Mapping[str, Capability]) -> ToolCall:
    """Return the call that a call of `tool_call` stands for, under the same id.

    One that cannot be understood, holds more than a name and arguments, or names a bridge, is returned as it is: the
    bridge itself then says how.
    """
    if call.name != TOOL_CALL or TOOL_CALL not in tools or call.problem is not None:
        return call
    name, arguments = call.arguments.get("name"), arguments_of(call)
    if not isinstance(name, str) or not name or name in BRIDGES or arguments is None or call.arguments.keys() - PARTS:
        return call
    return replace(call, name=name, arguments=arguments)


def arguments_of(call: ToolCall) -> JsonObject | None:
    """Return the arguments inside a call of `tool_call`; models also write them as JSON text, and null or nothing for
    an empty object. None when they are something else.
    """
    inner = call.arguments.get("arguments")
    if inner is None:
        return {}
    if isinstance(inner, str):
        try:
            inner = load_json(inner)
        except ValueError:
            return None
    return inner if isinstance(inner, dict) else None
