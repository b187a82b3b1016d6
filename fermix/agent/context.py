"""The runtime context: what every turn needs and no turn changes. Built by the agent, cached, taken whole by a turn.

A turn keeps the context it started with. A change of tools, memory or settings only drops the cached one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from fermix.agent.capability import Capability
from fermix.agent.deferral import offer
from fermix.agent.loop import ModelRouter
from fermix.agent.model import ToolSchema
from fermix.agent.prompt import PromptFiles, compose, compose_compact
from fermix.agent.providers.provider import ModelFacts, Route
from fermix.agent.registry import CapabilityRegistry, Narrowing, narrowed
from fermix.agent.tokens import prompt_tokens
from fermix.agent.turn import NOTHING_BUT_TEXT, WayBack
from fermix.config.model import AgentSettings, PersonalizationSettings
from fermix.errors import NeedsOperator
from fermix.trust import Trust

COMPACT_TOOLS = frozenset({"file_read", "glob_search", "content_search", "shell"})  # what a small model can choose from


@dataclass(frozen=True, slots=True)
class PromptSettings:
    """The settings that shape the prompt."""

    agent: AgentSettings
    owner: PersonalizationSettings


@dataclass(frozen=True, slots=True)
class Profile:
    """What callers of one trust get. `schemas` are those that a request holds, while `tools` is all that can be called;
    `fixed_tokens` estimates the prompt together with the schemas.
    """

    system: tuple[str, ...]
    tools: Mapping[str, Capability]
    schemas: tuple[ToolSchema, ...]
    fixed_tokens: int


@dataclass(frozen=True, slots=True)
class RuntimeContext:
    """One snapshot. `route` and `facts` are those of the first route, which the requests are shaped for."""

    router: ModelRouter
    route: Route
    facts: ModelFacts
    shaped: Callable[[Trust, bool, WayBack], Profile]
    """Makes a profile once and keeps it."""
    timezone: str | None

    def profile(self, trust: Trust | None, *, may_ask: bool = False, way_back: WayBack = NOTHING_BUT_TEXT) -> Profile:
        """Return the profile of a trust; no trust stated means guest, who never asks the owner."""
        if trust is not Trust.OPERATOR:
            return self.shaped(Trust.GUEST, False, way_back)
        return self.shaped(trust, may_ask, way_back)


def build_context(
    router: ModelRouter, registry: CapabilityRegistry, files: PromptFiles, settings: PromptSettings
) -> RuntimeContext:
    """Put a snapshot together. Raises: NeedsOperator when there is no model to ask."""
    if not router.routes:
        raise NeedsOperator("no model is configured", advice="run `fermix setup`")
    first = router.routes[0]
    compact, capabilities = first.facts.compact, registry.everything()

    @cache  # there are as many as kinds of callers and channels
    def shaped(trust: Trust, may_ask: bool, way_back: WayBack) -> Profile:
        allowed = COMPACT_TOOLS if compact else None
        visible = narrowed(capabilities, trust, Narrowing(allowed=allowed, may_ask=may_ask, way_back=way_back))
        offered = offer(visible, inline=compact)
        shown, deferred = offered.shown, offered.deferred
        system = compose_compact(files) if compact else compose(files, settings.owner, shown, trust, deferred)
        schemas = tuple(ToolSchema(tool.name, tool.description, tool.parameters) for tool in shown)
        return Profile(system, MappingProxyType(offered.tools), schemas, prompt_tokens(system, schemas))

    return RuntimeContext(router, first.route, first.facts, shaped, settings.owner.timezone)
