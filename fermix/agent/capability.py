"""A capability: plain data with a function in it. Built-in tools, skills and MCP tools differ in `kind` and `run`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from fermix.agent.model import JsonObject, JsonValue, ToolResult
from fermix.agent.turn import ReplyPort, Turn
from fermix.trust import PolicyClass


class Kind(StrEnum):
    BUILTIN = "builtin"
    SKILL = "skill"
    MCP = "mcp"


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Facts of one call. Services are given to a tool when it is built, never here."""

    turn: Turn
    port: ReplyPort
    call_id: str


RunTool = Callable[[Mapping[str, JsonValue], ToolContext], Awaitable[ToolResult]]


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing a model can call. `parameters` is a JSON Schema of type object; arguments are checked against it
    before `run`. `timeout_s` bounds one run. `owner_only` hides it from guests whatever its class;
    `asks_owner` hides it from every turn that cannot ask the owner.
    """

    name: str
    description: str
    parameters: JsonObject
    kind: Kind
    policy: PolicyClass
    owner_only: bool
    run: RunTool
    category: str = "system"
    when_to_use: str = ""
    timeout_s: float = 150.0
    asks_owner: bool = False
