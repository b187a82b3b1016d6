"""A capability: plain data with a function in it. Built-in tools, skills and MCP tools differ in `kind` and `run`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fermix.agent.exposure import Exposure
from fermix.agent.model import JsonObject, JsonValue, ToolResult
from fermix.agent.turn import ReplyPort, Turn, WayBack
from fermix.trust import PolicyClass

OUTPUT_CHARS = 60_000  # about 15,000 tokens: several results still fit beside a history in a 128k window


class Kind(StrEnum):
    BUILTIN = "builtin"
    SKILL = "skill"
    MCP = "mcp"


CHANNEL = "channel"
"""The category of tools that say something in the chat: one of them runs in a step."""

OUTSIDE_CLASSES = frozenset({PolicyClass.NETWORK, PolicyClass.EXTERNAL_API, PolicyClass.GUI_CONTROL})


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Facts of one call. Services are given to a tool when it is built, never here. `tools` is all that this turn can
    call, by name, whether its schema was shown to the model or not; `originals` are the whole texts of results that
    the turn has replaced by digests, by call id.
    """

    turn: Turn
    port: ReplyPort
    call_id: str
    tools: Mapping[str, Capability] = field(default_factory=dict[str, "Capability"])
    exposure: Exposure = field(default_factory=Exposure)
    originals: Mapping[str, str] = field(default_factory=dict[str, str])


RunTool = Callable[[Mapping[str, JsonValue], ToolContext], Awaitable[ToolResult]]
AsksWhy = Callable[[Mapping[str, JsonValue], ToolContext], str | None]
Fits = Callable[[WayBack], "Capability | None"]
ActsIn = Callable[[Mapping[str, JsonValue], ToolContext], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing a model can call. `parameters` is a JSON Schema of type object; arguments are checked against it before
    `run`. `timeout_s` bounds one run, `output_chars` the text of its result. `owner_only` hides it from guests
    whatever its class; `asks_owner` hides it from every turn that cannot ask the owner. `source` names the plugin
    or MCP server it came from, "" for our own. `outside` says whether its results hold words of others; None leaves
    that to kind and class. `ends_turn`: a success that was the only call of a step without text ends the turn.
    `asks` says why the owner must agree to exactly this call, or None when it is free; where it is missing
    `risk.py` decides by class. `acts_in` makes out where a call acts, for a tool whose arguments do not say all of
    it; the owner's yes is bound to that as well, and to `acts_on`, what lies there on disk, which is not shown. `fits`
    makes of it what a turn with this way back is offered, None for nothing; where it is missing that is itself.
    `hidden` keeps it from every model. `examples`, `failure_modes` and `requires_setup` are what `tool_help` tells.
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
    output_chars: int = OUTPUT_CHARS
    asks_owner: bool = False
    source: str = ""
    outside: bool | None = None
    ends_turn: bool = False
    examples: tuple[str, ...] = ()
    failure_modes: tuple[str, ...] = ()
    requires_setup: str = ""
    hidden: bool = False
    asks: AsksWhy | None = None
    acts_in: ActsIn | None = None
    acts_on: ActsIn | None = None
    fits: Fits | None = None

    @property
    def brings_outside(self) -> bool:
        """Whether its results hold words that others wrote."""
        if self.outside is not None:
            return self.outside
        return self.foreign or self.policy in OUTSIDE_CLASSES

    @property
    def foreign(self) -> bool:
        """Whether a plugin or an MCP server brought it, whose words and schema are not ours."""
        return self.kind is Kind.MCP or bool(self.source)
