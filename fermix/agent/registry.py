"""The one place capabilities are read from: built-in tools, skills and MCP tools under a single filter.

Filled by the composition root, read at the start of a turn. What `list_for` returns is all that the turn can
call: dispatch never looks here again. Trust decides first; every other filter can only take away, and what a turn
hands on is chosen from what it has itself. Written to on the loop's thread only, whole mappings at a time, so that
a reader needs no lock and never sees half a change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fermix.agent.capability import Capability, Kind
from fermix.agent.schema import compiled
from fermix.agent.turn import NOTHING_BUT_TEXT, WayBack
from fermix.errors import Unusable
from fermix.trust import OPERATOR_CLASSES, PolicyClass, Trust, classes_for

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every provider's wire accepts as a function name
SOURCE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})?")  # it stands in the prompt
GUEST_KINDS = frozenset({Kind.BUILTIN})
ALL_KINDS = frozenset(Kind)
BRIDGES = frozenset({"tool_search", "tool_describe", "tool_call"})
"""The tools in front of deferred ones. Nothing from outside gets such a name, not even while they do not exist."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What a caller does without, of all that its trust allows. Of `classes` and `allowed`, None takes nothing away
    and an empty set leaves nothing. `may_ask` says that the owner can be asked in this turn; `way_back` is what its
    chat takes.
    """

    kinds: frozenset[Kind] = ALL_KINDS
    classes: frozenset[PolicyClass] | None = None
    allowed: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    excluded_categories: frozenset[str] = frozenset()
    may_ask: bool = False
    way_back: WayBack = NOTHING_BUT_TEXT


WHOLE = Narrowing()


def narrowed(capabilities: Iterable[Capability], trust: Trust | None, by: Narrowing = WHOLE) -> tuple[Capability, ...]:
    """Return those of `capabilities` that a caller may call; no trust stated means guest.

    A part of a turn (a sub-agent, a job) is given a choice from its turn's own tools, so its rights never grow. What
    a plugin says of its own tools opens none of them to guests.
    """
    guest = trust is not Trust.OPERATOR
    kinds = by.kinds & GUEST_KINDS if guest else by.kinds
    classes = classes_for(trust) if by.classes is None else classes_for(trust) & by.classes
    return tuple(
        fitting
        for capability in capabilities
        if capability.kind in kinds
        and capability.policy in classes
        and (by.allowed is None or capability.name in by.allowed)
        and capability.name not in by.excluded
        and capability.category not in by.excluded_categories
        and not capability.hidden
        and not (guest and (capability.owner_only or capability.source))
        and (by.may_ask or not capability.asks_owner)
        and (fitting := capability if capability.fits is None else capability.fits(by.way_back)) is not None
    )


class CapabilityRegistry:
    """Capabilities by name, in the order of registration, so that the tool list of a request is stable."""

    def __init__(self, capabilities: Iterable[Capability] = ()) -> None:
        self._by_name: Mapping[str, Capability] = {}
        for capability in capabilities:
            self.register(capability)

    def register(self, capability: Capability) -> None:
        """Add one. Raises: Unusable when its name is taken or unfit, when its class, kind or audience is not stated,
        when a foreign one would answer for itself to `risk.py`, or nothing can be checked against its schema.
        """
        _check(capability)
        if capability.name in self._by_name:
            raise Unusable(f"capability {capability.name!r} is already registered", field="name")
        self._by_name = {**self._by_name, capability.name: capability}

    def unregister(self, source: str) -> tuple[str, ...]:
        """Take out all that came from one plugin or MCP server and return the names; running turns keep theirs."""
        if not source:
            raise Unusable("what Fermix itself brings is not taken out", field="source")
        gone = tuple(name for name, capability in self._by_name.items() if capability.source == source)
        self._by_name = {name: found for name, found in self._by_name.items() if found.source != source}
        return gone

    def everything(self) -> tuple[Capability, ...]:
        """Return all there is now, for a snapshot that is narrowed later."""
        return tuple(self._by_name.values())

    def list_for(self, trust: Trust | None, by: Narrowing = WHOLE) -> tuple[Capability, ...]:
        """Return what a caller may call; no trust stated means guest."""
        return narrowed(self.everything(), trust, by)


def _check(capability: Capability) -> None:
    name = capability.name
    if not NAME.fullmatch(name):
        raise Unusable(f"capability name {name!r} is not 1 to 64 of A-Z a-z 0-9 _ -", field="name")
    if capability.policy not in OPERATOR_CLASSES:
        raise Unusable(f"capability {name!r} has no known policy class", field="policy")
    if capability.kind not in ALL_KINDS:
        raise Unusable(f"capability {name!r} has no known kind", field="kind")
    if capability.owner_only not in (True, False):
        raise Unusable(f"capability {name!r} does not say whether it is owner-only", field="owner_only")
    if not SOURCE.fullmatch(capability.source):
        raise Unusable(f"capability {name!r} comes from {capability.source!r}, which is no name", field="source")
    if name in BRIDGES and (capability.foreign or capability.kind is not Kind.BUILTIN):
        raise Unusable(f"the name {name!r} is kept for a tool of Fermix", field="name")
    if capability.foreign and (capability.asks_owner or capability.asks is not None or capability.outside is False):
        raise Unusable(f"capability {name!r} is not ours and has rules of its own", field="source")
    if not capability.foreign:  # ours are compiled at their first call: all of them at once cost every idle daemon
        return
    try:
        compiled(capability)
    except Unusable as error:
        raise Unusable(f"capability {name!r}: {error}", field="parameters") from error
