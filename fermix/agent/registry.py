"""The one place capabilities are read from: built-in tools, skills and MCP tools under a single filter.

Filled by the composition root, read at the start of a turn. What `list_for` returns is all that the turn can
call: dispatch never looks here again. Trust decides first; every other filter can only take away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from fermix.agent.capability import Capability, Kind
from fermix.errors import Unusable
from fermix.trust import OPERATOR_CLASSES, Trust, classes_for

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every provider's wire accepts as a function name
GUEST_KINDS = frozenset({Kind.BUILTIN})
ALL_KINDS = frozenset(Kind)


class CapabilityRegistry:
    """Capabilities by name, in the order of registration, so that the tool list of a request is stable."""

    def __init__(self, capabilities: Iterable[Capability] = ()) -> None:
        self._by_name: dict[str, Capability] = {}
        for capability in capabilities:
            self.register(capability)

    def register(self, capability: Capability) -> None:
        """Add one. Raises: Unusable when its name is taken or unfit, or its class or audience is not stated."""
        if not NAME.fullmatch(capability.name):
            raise Unusable(f"capability name {capability.name!r} is not 1 to 64 of A-Z a-z 0-9 _ -", field="name")
        if capability.name in self._by_name:
            raise Unusable(f"capability {capability.name!r} is already registered", field="name")
        if capability.policy not in OPERATOR_CLASSES:
            raise Unusable(f"capability {capability.name!r} has no known policy class", field="policy")
        if capability.kind not in ALL_KINDS:
            raise Unusable(f"capability {capability.name!r} has no known kind", field="kind")
        if capability.owner_only not in (True, False):
            raise Unusable(f"capability {capability.name!r} does not say whether it is owner-only", field="owner_only")
        self._by_name[capability.name] = capability

    def list_for(
        self,
        trust: Trust | None,
        *,
        kinds: frozenset[Kind] = ALL_KINDS,
        allowed: frozenset[str] | None = None,
        excluded: frozenset[str] = frozenset(),
        excluded_categories: frozenset[str] = frozenset(),
        may_ask: bool = False,
    ) -> tuple[Capability, ...]:
        """Return what a caller may call; no trust stated means guest. `allowed` None lets all names pass, an empty
        set none. `may_ask` says that the owner can be asked in this turn.
        """
        classes = classes_for(trust)
        visible_kinds = kinds if trust is Trust.OPERATOR else kinds & GUEST_KINDS
        return tuple(
            capability
            for capability in self._by_name.values()
            if capability.kind in visible_kinds
            and capability.policy in classes
            and (allowed is None or capability.name in allowed)
            and capability.name not in excluded
            and capability.category not in excluded_categories
            and (trust is Trust.OPERATOR or not capability.owner_only)
            and (may_ask or not capability.asks_owner)
        )
