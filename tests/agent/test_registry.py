from __future__ import annotations

from typing import cast

import pytest

from fermix.agent.capability import Kind
from fermix.agent.registry import CapabilityRegistry
from fermix.errors import Unusable
from fermix.trust import PolicyClass, Trust
from tests.fakes.turns import make_capability
from tests.requirements import covers

MIXED = (
    make_capability("file_read"),
    make_capability("memory_read", owner_only=True),
    make_capability("file_write", policy=PolicyClass.READ_WRITE, category="file"),
    make_capability("shell", policy=PolicyClass.EXEC),
    make_capability("web_fetch", policy=PolicyClass.NETWORK, category="web"),
    make_capability("image", policy=PolicyClass.EXTERNAL_API),
    make_capability("screen", policy=PolicyClass.GUI_CONTROL),
    make_capability("review", kind=Kind.SKILL),
    make_capability("tickets_list", kind=Kind.MCP),
)
ALL = tuple(capability.name for capability in MIXED)


@pytest.mark.parametrize(
    ("trust", "filters", "expected"),
    [
        (Trust.OPERATOR, {}, ALL),
        (Trust.GUEST, {}, ("file_read",)),
        (None, {}, ("file_read",)),
        (Trust.OPERATOR, {"allowed": frozenset()}, ()),
        (Trust.OPERATOR, {"allowed": frozenset({"shell", "nothing"})}, ("shell",)),
        (Trust.GUEST, {"allowed": frozenset({"shell", "file_read", "review"})}, ("file_read",)),
        (Trust.OPERATOR, {"allowed": frozenset({"shell", "review"}), "excluded": frozenset({"shell"})}, ("review",)),
        (Trust.OPERATOR, {"kinds": frozenset({Kind.SKILL, Kind.MCP})}, ("review", "tickets_list")),
        (Trust.GUEST, {"kinds": frozenset({Kind.SKILL, Kind.MCP})}, ()),
        (Trust.OPERATOR, {"excluded_categories": frozenset({"system"})}, ("file_write", "web_fetch")),
    ],
)
@covers(
    "registry.three-kinds",
    "registry.filters",
    "trust.operator.full",
    "trust.guest.no-effect-classes",
    "trust.guest.no-mcp-no-skills",
    "trust.guest.keeps-read-only",
    "trust.missing-is-guest",
    "trust.two-levels",
)
def test_registry_lists_what_trust_and_filters_leave(
    trust: Trust | None, filters: dict[str, frozenset[str]], expected: tuple[str, ...]
) -> None:
    """SBX-14, Architecture "Trust boundaries": trust decides, filters only take away, an empty list means none."""
    listed = CapabilityRegistry(MIXED).list_for(trust, **filters)  # pyright: ignore[reportArgumentType]

    assert expected == tuple(capability.name for capability in listed)


def test_second_capability_of_a_name_is_refused() -> None:
    """Reference 4, 4.1: registering an existing name is refused, so that nothing can take a tool's place."""
    registry = CapabilityRegistry([make_capability("shell", policy=PolicyClass.EXEC)])

    with pytest.raises(Unusable, match="already registered"):
        registry.register(make_capability("shell"))

    assert [capability.policy for capability in registry.list_for(Trust.OPERATOR)] == [PolicyClass.EXEC]


def test_capability_without_a_class_is_refused() -> None:
    """Reference 4, 4.1; R-28: what nobody classified must not become visible to guests by default."""
    with pytest.raises(Unusable, match="policy class"):
        CapabilityRegistry([make_capability(policy=cast(PolicyClass, None))])


def test_capability_of_no_known_kind_is_refused() -> None:
    """What is no built-in, skill or MCP tool would slip past the filter for guests."""
    with pytest.raises(Unusable, match="known kind"):
        CapabilityRegistry([make_capability(kind=cast(Kind, "plugin"))])


def test_capability_without_an_audience_is_refused() -> None:
    """Reference 4, 4.1: every tool states whether it is owner-only."""
    with pytest.raises(Unusable, match="owner-only"):
        CapabilityRegistry([make_capability(owner_only=cast(bool, None))])


@pytest.mark.parametrize("name", ["", "two words", "ümlaut", "a" * 65, "semi;colon"])
def test_name_that_no_wire_accepts_is_refused(name: str) -> None:
    """Providers answer 400 for the whole request when one function name is unfit."""
    with pytest.raises(Unusable, match="capability name"):
        CapabilityRegistry([make_capability(name)])
