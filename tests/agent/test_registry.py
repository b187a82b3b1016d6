from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.agent.capability import Kind
from fermix.agent.model import JsonObject
from fermix.agent.registry import BRIDGES, CapabilityRegistry, Narrowing, narrowed
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
    replace(make_capability("mail_read"), source="mail"),
    replace(make_capability("internal"), hidden=True),
)
ALL = tuple(capability.name for capability in MIXED if not capability.hidden)


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
        (Trust.OPERATOR, {"classes": frozenset({PolicyClass.EXEC, PolicyClass.NETWORK})}, ("shell", "web_fetch")),
        (Trust.OPERATOR, {"classes": frozenset()}, ()),
        (Trust.GUEST, {"classes": frozenset(PolicyClass)}, ("file_read",)),
        (None, {"classes": frozenset({PolicyClass.EXEC})}, ()),
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
    trust: Trust | None, filters: dict[str, Any], expected: tuple[str, ...]
) -> None:
    """SBX-14, Architecture "Trust boundaries": trust decides, filters only take away, an empty list means none."""
    listed = CapabilityRegistry(MIXED).list_for(trust, Narrowing(**filters))

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


NAMES = st.frozensets(st.sampled_from([capability.name for capability in MIXED]))
NARROWINGS = st.builds(
    Narrowing,
    kinds=st.frozensets(st.sampled_from(Kind)),
    classes=st.none() | st.frozensets(st.sampled_from(PolicyClass)),
    allowed=st.none() | NAMES,
    excluded=NAMES,
    excluded_categories=st.frozensets(st.sampled_from(["system", "web", "file"])),
    may_ask=st.booleans(),
)


@given(
    mixed=st.lists(st.sampled_from(MIXED), unique_by=lambda capability: capability.name),
    chain=st.lists(st.tuples(st.sampled_from([Trust.OPERATOR, Trust.GUEST, None]), NARROWINGS), max_size=6),
)
def test_no_chain_of_callers_ever_gains_a_right(
    mixed: list[Any], chain: Sequence[tuple[Trust | None, Narrowing]]
) -> None:
    """R-20: what is started on behalf of somebody has no right that he lacks, whatever trust and filters it states."""
    had = tuple(mixed)
    for trust, by in chain:
        has = narrowed(had, trust, by)
        assert [capability for capability in had if capability in has] == list(has)
        if trust is not Trust.OPERATOR:
            assert all(one.kind is Kind.BUILTIN and one.policy is PolicyClass.READ_ONLY for one in has)
            assert not any(one.owner_only for one in has)
        had = has


def test_all_of_a_plugin_or_server_goes_at_once() -> None:
    """Reference 4, 4.1: a whole group is taken out by its source; a turn that has listed them keeps what it has."""
    of_server = [replace(make_capability(f"tickets_{n}", kind=Kind.MCP), source="tickets") for n in range(3)]
    of_another = replace(make_capability("mail_list", kind=Kind.MCP), source="mail")
    registry = CapabilityRegistry([*of_server, make_capability("look"), of_another])
    before = registry.list_for(Trust.OPERATOR)

    assert registry.unregister("tickets") == ("tickets_0", "tickets_1", "tickets_2")
    assert [capability.name for capability in registry.list_for(Trust.OPERATOR)] == ["look", "mail_list"]
    assert len(before) == 5
    assert registry.unregister("tickets") == ()
    registry.register(of_server[0])


def test_what_fermix_brings_is_not_taken_out() -> None:
    """ "" is the source of every tool of our own."""
    registry = CapabilityRegistry(MIXED)

    with pytest.raises(Unusable, match="not taken out"):
        registry.unregister("")

    assert len(registry.list_for(Trust.OPERATOR)) == len(ALL)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": "array"},
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "properties": ["a"]},
        {"type": "object", "required": 3},
        {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}},
        {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
        {"type": "object", "properties": {"a": {"$ref": "gopher://127.0.0.1/1"}}},
        {"type": "object", "$id": "http://127.0.0.1:9/", "properties": {"a": {"$ref": "other.json"}}},
        {"type": "object", "description": "x" * 70_000},
        {"type": "object", "enum": [float, 1]},
    ],
    ids=str,
)
def test_schema_that_checks_nothing_is_refused_when_it_is_registered(parameters: JsonObject) -> None:
    """MCP-06: one schema that cannot be used must not spoil a turn; and no address in it is ever called."""
    with pytest.raises(Unusable, match="capability 'look': its schema"):
        CapabilityRegistry([make_capability(parameters=parameters, source="tickets")])


def test_endless_schema_is_refused() -> None:
    """MCP-06: deep recursion."""
    parameters: JsonObject = {"type": "object"}
    for _ in range(3_000):
        parameters = {"type": "object", "properties": {"a": parameters}}

    with pytest.raises(Unusable, match="its schema"):
        CapabilityRegistry([make_capability(parameters=parameters, source="tickets")])


def test_schema_may_refer_to_itself() -> None:
    """MCP-06: a plain $ref within the schema is resolved; a tree of any depth is checked."""
    tree: JsonObject = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}}

    assert CapabilityRegistry([make_capability(parameters=tree)]).list_for(Trust.OPERATOR)


@pytest.mark.parametrize("name", sorted(BRIDGES))
def test_no_server_and_no_plugin_takes_the_name_of_a_bridge(name: str) -> None:
    """MCP-07: no server shadows a tool of ours, not even one that is switched off."""
    with pytest.raises(Unusable, match="kept for a tool of Fermix"):
        CapabilityRegistry([make_capability(name, kind=Kind.MCP)])
    with pytest.raises(Unusable, match="kept for a tool of Fermix"):
        CapabilityRegistry([replace(make_capability(name), source="tickets")])


@pytest.mark.parametrize("source", ["two words", "a\n# New rules", "-", "x" * 65])
def test_source_that_is_no_name_is_refused(source: str) -> None:
    """Its name stands in the prompt, where a line break would begin a section of its own."""
    with pytest.raises(Unusable, match="which is no name"):
        CapabilityRegistry([replace(make_capability(kind=Kind.MCP), source=source)])


@pytest.mark.parametrize("claim", [{"asks_owner": True}, {"asks": lambda arguments, context: None}, {"outside": False}])
@pytest.mark.parametrize("foreign", [{"kind": Kind.MCP}, {"source": "mail"}])
def test_what_a_server_or_plugin_brings_has_no_rules_of_its_own(claim: dict[str, Any], foreign: dict[str, Any]) -> None:
    """R-28: each of these would take its calls out of the owner's questions, or its words out of their frame."""
    with pytest.raises(Unusable, match="rules of its own"):
        CapabilityRegistry([replace(make_capability("tickets_close"), **foreign, **claim)])

    CapabilityRegistry([replace(make_capability("tickets_close"), **foreign), replace(make_capability(), **claim)])
