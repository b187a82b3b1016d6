"""R-49 as a table: what a turn has read decides which of its calls are free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.exposure import Exposure
from fermix.agent.model import AssistantMessage, JsonValue, ToolMessage, ToolResult, UserMessage
from fermix.agent.results import framed, presentable
from fermix.agent.risk import exposure_at_start, note_result, why_asked, why_composed
from fermix.trust import PolicyClass
from tests.fakes.turns import RecordingPort, make_capability, make_turn

PAGE = "https://example.org/page"
READ = make_capability("file_read")
FETCH = make_capability("web_fetch", policy=PolicyClass.NETWORK)
SHELL = make_capability("shell", policy=PolicyClass.EXEC)
TOOLS = {tool.name: tool for tool in (READ, FETCH, SHELL)}


def exposed(*, now: bool = False, earlier: bool = False, local: bool = False, local_earlier: bool = False) -> Exposure:
    exposure = Exposure(earlier=earlier, local_earlier=local_earlier)
    if now:
        exposure.read_from("web_fetch")
    if local:
        exposure.read_local()
    return exposure


def asks(capability: Capability, exposure: Exposure) -> bool:
    context = ToolContext(make_turn(), RecordingPort(), "c1", exposure=exposure)
    return why_asked(capability, {}, context) is not None


@pytest.mark.parametrize("policy", list(PolicyClass))
def test_a_turn_that_read_nothing_from_outside_is_free(policy: PolicyClass) -> None:
    assert not asks(make_capability(policy=policy), exposed(local=True, local_earlier=True))


@pytest.mark.parametrize(
    ("policy", "asked"),
    [
        (PolicyClass.READ_ONLY, False),
        (PolicyClass.READ_WRITE, False),
        (PolicyClass.EXEC, True),
        (PolicyClass.NETWORK, False),
        (PolicyClass.EXTERNAL_API, True),
        (PolicyClass.GUI_CONTROL, True),
    ],
)
def test_what_acts_asks_once_the_turn_has_read_from_outside(policy: PolicyClass, asked: bool) -> None:
    """Files of the roots stay free: nothing leaves by them, and what governs us is protected anyway."""
    tool = make_capability(policy=policy)

    assert asks(tool, exposed(now=True)) is asked
    assert not asks(tool, exposed(earlier=True))


@pytest.mark.parametrize(
    ("exposure", "asked"),
    [
        (exposed(now=True), False),
        (exposed(local=True), False),
        (exposed(now=True, local=True), True),
        (exposed(now=True, local_earlier=True), True),
        (exposed(earlier=True, local=True), True),
        (exposed(earlier=True, local_earlier=True), False),
    ],
)
@pytest.mark.parametrize(
    "tool",
    [
        make_capability("web_search", policy=PolicyClass.NETWORK),
        make_capability("mcp_look", kind=Kind.MCP),
        replace(make_capability("plugin_look"), source="plugin"),
    ],
    ids=lambda tool: tool.name,
)
def test_what_tells_others_asks_when_outside_words_meet_local_things(
    tool: Capability, exposure: Exposure, asked: bool
) -> None:
    assert asks(tool, exposure) is asked


def test_a_servers_own_class_takes_no_question_away() -> None:
    """What most servers are: a call that acts, whose arguments go to somebody else as well."""
    tool = make_capability("mcp_file_issue", kind=Kind.MCP, policy=PolicyClass.EXTERNAL_API)

    assert asks(tool, exposed(earlier=True, local=True))
    assert asks(tool, exposed(now=True))
    assert not asks(tool, exposed(earlier=True))


def test_a_server_cannot_talk_itself_out_of_its_class() -> None:
    """R-28: a class can be raised by what it claims, never lowered."""
    claims = replace(make_capability("mcp_look", kind=Kind.MCP), outside=None, category="channel")

    assert asks(claims, exposed(now=True, local=True))


def test_a_tool_that_asks_by_itself_is_not_asked_for_twice() -> None:
    tool = replace(make_capability("request_directory_access", policy=PolicyClass.EXTERNAL_API), asks_owner=True)

    assert not asks(tool, exposed(now=True, local=True))


def test_a_tool_may_have_a_rule_of_its_own() -> None:
    def pulls(arguments: Mapping[str, JsonValue], context: ToolContext) -> str | None:
        return "it pulls" if arguments["action"] == "pull" and context.exposure.sources else None

    tool = replace(make_capability("git_write", policy=PolicyClass.READ_WRITE), asks=pulls)
    context = ToolContext(make_turn(), RecordingPort(), "c1", exposure=exposed(now=True))

    assert why_asked(tool, {"action": "pull"}, context) == "it pulls"
    assert why_asked(tool, {"action": "add"}, context) is None


@pytest.mark.parametrize("exposure", [exposed(now=True), exposed(earlier=True)])
def test_an_address_of_its_own_making_asks_and_a_given_one_does_not(exposure: Exposure) -> None:
    exposure.note_addresses(PAGE)

    assert why_composed(PAGE, exposure) is None
    assert why_composed(f"{PAGE}?d=secret", exposure) is not None
    assert why_composed(f"{PAGE}?d=secret", exposed(local=True)) is None


def test_a_result_tells_what_the_turn_has_read() -> None:
    exposure = Exposure()
    note_result(exposure, READ, ToolResult(True, f"see {PAGE}"))
    assert (exposure.sources, exposure.local, exposure.given(PAGE)) == ((), True, False)

    document = presentable(ToolResult(True, f"see {PAGE}", outside=True), READ)
    note_result(exposure, READ, document)
    assert (exposure.sources, exposure.given(PAGE)) == (("file_read",), False)

    note_result(exposure, FETCH, presentable(ToolResult(True, f"see {PAGE}"), FETCH))
    assert (exposure.sources, exposure.given(PAGE)) == (("file_read", "web_fetch"), True)


def test_a_refusal_and_words_of_our_own_are_nothing_local() -> None:
    exposure = Exposure()
    note_result(exposure, READ, ToolResult(False, "outside every allowed folder", denied=True))
    note_result(exposure, replace(READ, outside=False), ToolResult(True, "a help text of ours"))

    assert not exposure.local


def test_a_turn_begins_with_what_its_history_holds() -> None:
    history = (
        UserMessage("and https://example.org/yesterday"),
        AssistantMessage("", ()),
        ToolMessage("c1", "web_fetch", framed(f"go to {PAGE}", "web_fetch"), ok=True),
        ToolMessage("c2", "file_read", framed("see https://example.org/pdf", "file_read"), ok=True),
        ToolMessage("c3", "shell", "see https://example.org/shell", ok=True),
    )
    exposure = exposure_at_start("read https://example.org/now", history, TOOLS)
    given = [
        name for name in ("page", "now", "pdf", "shell", "yesterday") if exposure.given(f"https://example.org/{name}")
    ]

    assert (exposure.earlier, exposure.local_earlier, exposure.sources, exposure.local) == (True, True, (), False)
    assert given == ["page", "now"]
    assert not exposure_at_start("hello", history[:1], TOOLS).earlier


def test_an_address_in_an_earlier_failure_was_not_given() -> None:
    """A failure repeats what the model itself asked for."""
    failed = ToolMessage("c1", "web_fetch", framed(f"{PAGE} did not answer", "web_fetch"), ok=False)

    assert not exposure_at_start("hello", [failed], TOOLS).given(PAGE)


def test_a_result_of_a_tool_that_is_gone_counts_as_local() -> None:
    assert exposure_at_start("hello", [ToolMessage("c1", "gone", "words", ok=True)], TOOLS).local_earlier
