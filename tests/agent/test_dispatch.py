from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from fermix.agent.capability import Kind, RunTool, ToolContext
from fermix.agent.dispatch import PROBLEM_CHARS, Dispatcher
from fermix.agent.exposure import Exposure
from fermix.agent.model import JsonObject, JsonValue, ToolCall, ToolResult
from fermix.agent.registry import CapabilityRegistry
from fermix.clock import SystemClock
from fermix.errors import NeedsOperator, OutsideSandbox, ServerUnavailable
from fermix.events import EventQueue, Events, ToolCalled, ToolStarted
from fermix.trust import PolicyClass, Trust
from tests.fakes.turns import RecordingPort, make_call, make_capability, make_scope
from tests.requirements import covers

READ: JsonObject = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "lines": {"type": "integer", "minimum": 1, "default": 10},
        "part": {"type": "object", "properties": {"from": {"type": "integer", "default": 1}}},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.fixture
def events() -> Events:
    return Events(SystemClock())


@pytest.fixture
def seen(events: Events) -> Iterator[EventQueue]:
    with events.subscribe(1_000) as queue:
        yield queue


@pytest.fixture
def dispatcher(events: Events) -> Dispatcher:
    return Dispatcher(events, SystemClock())


def raising(error: BaseException) -> RunTool:
    async def run(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        raise error

    return run


async def echo(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
    return ToolResult(True, f"{context.turn.id} {context.call_id} {dict(arguments)}")


async def hang(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
    await asyncio.Event().wait()
    return ToolResult(True, "never")


def pairs(seen: EventQueue) -> list[tuple[str, bool]]:
    """Check that each call began and ended once, in order; return name and ok of each."""
    events = [item.event for item in seen.drain()]
    begun, ended = events[::2], events[1::2]
    assert all(isinstance(event, ToolStarted) for event in begun)
    ends = [event for event in ended if isinstance(event, ToolCalled)]
    assert len(begun) == len(ended) == len(ends)
    return [(event.name, event.ok) for event in ends]


@covers("loop.admission-per-call")
async def test_admitted_call_runs_with_its_arguments_and_the_facts_of_its_turn(
    dispatcher: Dispatcher, seen: EventQueue
) -> None:
    """Architecture, message-to-reply, step 6; defaults of a schema are the tool's affair and are not filled in."""
    scope = make_scope(make_capability("file_read", echo, parameters=READ))

    result = await dispatcher.dispatch(make_call("file_read", path="a", part={}), scope)

    assert result == ToolResult(True, "t1 call00001 {'path': 'a', 'part': {}}")
    assert pairs(seen) == [("file_read", True)]


@covers("trust.whole-turn")
async def test_tool_filtered_out_by_trust_is_answered_like_one_that_does_not_exist(
    dispatcher: Dispatcher, seen: EventQueue
) -> None:
    """SBX-15: dispatch looks only into the turn's filtered map, and its answer tells nothing."""
    ran: list[str] = []

    async def shell(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        ran.append("shell")
        return ToolResult(True, "")

    registry = CapabilityRegistry([make_capability(), make_capability("shell", shell, policy=PolicyClass.EXEC)])
    scope = make_scope(*registry.list_for(Trust.GUEST))

    hidden = await dispatcher.dispatch(make_call("shell"), scope)
    unknown = await dispatcher.dispatch(make_call("shall"), scope)

    assert ran == []
    assert hidden.denied
    assert hidden.text.replace("shell", "shall") == unknown.text
    assert pairs(seen) == [("shell", False), ("shall", False)]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "['path']"),
        ({"path": 1}, "arguments.path must be string"),
        ({"path": "a", "lines": 0}, "arguments.lines must be bigger"),
        ({"path": "a", "mode": "x"}, "'mode'"),
    ],
)
async def test_arguments_that_do_not_fit_are_explained_and_not_run(
    dispatcher: Dispatcher, seen: EventQueue, arguments: dict[str, JsonValue], complaint: str
) -> None:
    """PRV-07: a tool error the model can act on, never a run with guessed arguments."""
    scope = make_scope(make_capability("file_read", raising(AssertionError("ran")), parameters=READ))

    result = await dispatcher.dispatch(make_call("file_read", **arguments), scope)

    assert not result.ok
    assert complaint in result.text
    assert pairs(seen) == [("file_read", False)]


async def test_unusable_arguments_come_back_as_a_short_preview(dispatcher: Dispatcher, seen: EventQueue) -> None:
    """PRV-06, PRV-07: cut off or malformed arguments never run, and a megabyte is not echoed back."""
    scope = make_scope(make_capability("file_read", raising(AssertionError("ran"))))
    call = ToolCall("call00001", "file_read", {}, problem="arguments cut off at the output limit: " + "x" * 1_000_000)

    result = await dispatcher.dispatch(call, scope)

    assert not result.ok
    assert result.text.startswith("arguments cut off at the output limit")
    assert len(result.text) < PROBLEM_CHARS + 100
    assert pairs(seen) == [("file_read", False)]


@pytest.mark.parametrize(
    ("error", "text", "denied"),
    [
        (OutsideSandbox("/etc/shadow", "outside every allowed folder"), "/etc/shadow: outside", True),
        (ServerUnavailable("search server is down"), "search server is down", False),
        (KeyError("answer"), "the tool failed: KeyError: 'answer'", False),
        (asyncio.CancelledError(), "broke off by itself", False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_failure_of_a_tool_is_a_result(
    dispatcher: Dispatcher, seen: EventQueue, error: BaseException, text: str, denied: bool
) -> None:
    """House 9: a tool's failure is a value, because the model must read it; a leaked cancellation too."""
    result = await dispatcher.dispatch(make_call(), make_scope(make_capability(run=raising(error))))

    assert not result.ok
    assert text in result.text
    assert result.denied is denied
    assert pairs(seen) == [("look", False)]


async def test_bug_in_a_tool_leaves_its_traceback_in_the_log_only(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    """Issue "Bad input and failures": a traceback only in the log."""
    with caplog.at_level(logging.ERROR):
        result = await dispatcher.dispatch(make_call(), make_scope(make_capability(run=raising(ZeroDivisionError()))))

    assert "Traceback" not in result.text
    assert "ZeroDivisionError" in caplog.text


async def test_tool_that_hangs_is_stopped_at_its_own_time(dispatcher: Dispatcher, seen: EventQueue) -> None:
    """House: every wait has a bound; only the call fails, not the turn."""
    result = await dispatcher.dispatch(make_call(), make_scope(make_capability(run=hang, timeout_s=0.01)))

    assert result == ToolResult(False, "gave no result within 0.01 s and was stopped")
    assert pairs(seen) == [("look", False)]


async def test_stop_passes_through_a_running_tool_and_leaves_one_result(
    dispatcher: Dispatcher, seen: EventQueue
) -> None:
    """QUE-01 (c): a stop while a tool runs is a cancellation, and the trace still has one end for the call."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(dispatcher.dispatch(make_call(), make_scope(make_capability(run=hang))))
        await asyncio.sleep(0)
        task.cancel()

    assert task.cancelled()
    assert pairs(seen) == [("look", False)]


async def test_a_stop_that_a_tool_takes_for_its_own_still_stops_the_turn(
    dispatcher: Dispatcher, seen: EventQueue
) -> None:
    """QUE-01: a library that answers a cancellation with a result must not let the turn go on to its next call."""
    running = asyncio.Event()

    async def swallow(_arguments: Mapping[str, JsonValue], _context: ToolContext) -> ToolResult:
        running.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return ToolResult(True, "as if nothing had been")

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(dispatcher.dispatch(make_call(), make_scope(make_capability(run=swallow))))
        await running.wait()
        task.cancel()

    assert task.cancelled()
    assert pairs(seen) == [("look", False)]


async def test_skipped_call_has_its_one_result_too(dispatcher: Dispatcher, seen: EventQueue) -> None:
    """Issue 2, agent loop: every call is answered by exactly one result, also when skipped."""
    result = dispatcher.skip(make_call(), make_scope(), "the turn ended")

    assert result == ToolResult(False, "not run: the turn ended")
    assert pairs(seen) == [("look", False)]


async def test_schema_that_points_elsewhere_fetches_nothing(dispatcher: Dispatcher) -> None:
    """A tool's schema must not make the daemon fetch an address."""
    remote: JsonObject = {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema"}}}

    result = await dispatcher.dispatch(make_call(), make_scope(make_capability(parameters=remote)))

    assert not result.ok
    assert "may not point" in result.text


async def test_reloaded_tool_of_the_same_name_is_checked_by_its_own_schema(dispatcher: Dispatcher) -> None:
    """The compiled check belongs to the capability, not to its name."""
    await dispatcher.dispatch(
        make_call("file_read", path="a"), make_scope(make_capability("file_read", parameters=READ))
    )
    other: JsonObject = {"type": "object", "required": ["url"]}

    result = await dispatcher.dispatch(
        make_call("file_read", path="a"), make_scope(make_capability("file_read", parameters=other))
    )

    assert "url" in result.text


@pytest.mark.parametrize("policy", list(PolicyClass))
async def test_a_tool_with_an_effect_is_marked_before_it_runs(dispatcher: Dispatcher, policy: PolicyClass) -> None:
    """Issue 3, ledger: a tool with an effect commits its begin mark before it runs; reading needs none."""
    port = RecordingPort()
    marks: list[list[str]] = []

    async def look(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        marks.append(list(port.effects))
        return ToolResult(True, "done")

    await dispatcher.dispatch(make_call("act"), make_scope(make_capability("act", look, policy=policy), port=port))

    assert marks == [[] if policy is PolicyClass.READ_ONLY else ["act"]]


async def test_a_tool_whose_mark_cannot_be_written_does_not_run(dispatcher: Dispatcher) -> None:
    class FullDisk(RecordingPort):
        async def effect(self, name: str) -> None:
            raise NeedsOperator("the disk is full", advice="free some space")

    async def never(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        raise AssertionError("it ran")

    tool = make_capability("act", never, policy=PolicyClass.EXEC)
    result = await dispatcher.dispatch(make_call("act"), make_scope(tool, port=FullDisk()))

    assert (result.ok, result.text) == (False, "the disk is full: free some space")


async def test_the_trace_tells_what_a_turn_had_read_before_and_with_each_call(
    dispatcher: Dispatcher, seen: EventQueue
) -> None:
    """R-49: the taint of a turn is shown in the trace."""
    page = make_capability("page", policy=PolicyClass.NETWORK)
    scope = make_scope(page, make_capability())
    for name in ("look", "page", "look"):
        await dispatcher.dispatch(make_call(name), scope)
    later = replace(scope, exposure=Exposure(earlier=True))
    await dispatcher.dispatch(make_call(), later)

    events = [item.event for item in seen.drain()]
    assert [event.exposed for event in events if isinstance(event, ToolStarted)] == ["no", "no", "now", "earlier"]
    assert [event.outside for event in events if isinstance(event, ToolCalled)] == [False, True, False, False]


@pytest.mark.parametrize("arguments", [{}, {"path": "a", "mode": "x"}])
async def test_what_keeps_a_call_of_ours_from_running_is_told_unframed_and_exposes_nothing(
    dispatcher: Dispatcher, arguments: dict[str, JsonValue]
) -> None:
    """Reference 4, 1.5: the vendor's text is framed, not ours. A slip in an argument must not make commands ask."""
    page = make_capability("page", raising(AssertionError("ran")), policy=PolicyClass.NETWORK, parameters=READ)
    scope = make_scope(page)

    result = await dispatcher.dispatch(make_call("page", **arguments), scope)

    assert (result.ok, result.outside, scope.exposure.state) == (False, False, "no")
    assert result.text.startswith("arguments do not fit: ")


async def test_a_complaint_in_the_words_of_a_server_is_framed(dispatcher: Dispatcher) -> None:
    """INJ-01: the names that its schema gives are not ours."""
    foreign = {"type": "object", "properties": {"a": {"enum": ["read file W"]}}}
    scope = make_scope(make_capability("tickets", kind=Kind.MCP, parameters=foreign))

    result = await dispatcher.dispatch(make_call("tickets", a="b"), scope)

    assert (result.text.splitlines()[0], scope.exposure.state) == ('<fermix-untrusted source="tickets">', "now")


async def test_a_slip_is_not_something_read_on_this_machine(dispatcher: Dispatcher) -> None:
    scope = make_scope(make_capability("file_read", raising(AssertionError("ran")), parameters=READ))

    await dispatcher.dispatch(make_call("file_read"), scope)

    assert not scope.exposure.local
