from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.agent import loop
from fermix.agent.capability import CHANNEL, Capability, Kind, ToolContext
from fermix.agent.dispatch import Dispatcher
from fermix.agent.loop import MAX_STEPS, ONE_A_STEP, REPEATED, Declined, LoopServices, run_loop
from fermix.agent.markers import FAILED, STOPPED, WORDLESS
from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    Completion,
    Image,
    JsonValue,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolMessage,
    ToolResult,
    Usage,
    UserMessage,
)
from fermix.agent.providers.provider import AllRoutesFailed, ErrorKind, OnDelta, ProviderFailed, Route
from fermix.agent.sentences import LIMITS, sentence_for
from fermix.agent.tools import recall, tool_search
from fermix.agent.tools.tool_search import ToolSearchSettings
from fermix.agent.turn import Completed, RequestSize
from fermix.clock import SystemClock
from fermix.errors import FermixError, LimitReached, NeedsOperator
from fermix.events import EventQueue, Events, ModelCalled, ToolCalled
from fermix.trust import PolicyClass
from tests.fakes.router import FACTS, Line, ScriptedRoute, ScriptedRouter, calls, says
from tests.fakes.turns import RecordingPort, make_call, make_capability, make_scope, of_kind
from tests.requirements import covers

ASK = ChatRequest(system=("be brief",), messages=(UserMessage("hello"),))


class Stage:
    """A loop with its fakes: play a script, look at what happened."""

    def __init__(self, events: Events, seen: EventQueue) -> None:
        self.events = events
        self.seen = seen
        self.port = RecordingPort()
        self.router = ScriptedRouter([])

    async def play(self, script: Sequence[Line], *tools: Capability) -> Completed:
        self.router = ScriptedRouter(script)
        return await self.run(*tools)

    async def run(self, *tools: Capability) -> Completed:
        dispatcher = Dispatcher(self.events, SystemClock())
        services = LoopServices(self.router, dispatcher, self.events, SystemClock())
        async with asyncio.timeout(5):
            return await run_loop(services, make_scope(*tools, port=self.port), ASK)

    @property
    def last_messages(self) -> tuple[ChatMessage, ...]:
        return self.router.requests[-1].messages


@pytest.fixture
def stage() -> Iterator[Stage]:
    events = Events(SystemClock())
    with events.subscribe(10_000) as seen:
        yield Stage(events, seen)


def counting(ran: list[str]) -> Callable[[Mapping[str, JsonValue], ToolContext], Awaitable[ToolResult]]:
    async def run(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        ran.append(context.call_id)
        return ToolResult(True, f"result {len(ran)}")

    return run


def failed(kind: ErrorKind, *, streamed: bool = False) -> ProviderFailed:
    return ProviderFailed(kind, provider="fake", model="script-1", streamed=streamed)


THOUGHTS_ONLY = failed(ErrorKind.EMPTY, streamed=True)


async def test_answer_without_calls_ends_the_turn(stage: Stage) -> None:
    """Architecture, message-to-reply, step 6: repeat until there are no tool calls."""
    outcome = await stage.play([says("Hello.")])

    assert outcome == Completed(
        text="Hello.",
        model="fake/script-1",
        peak=RequestSize(10, measured=True),
        usage=Usage(10, 2),
        steps=1,
        new_messages=(AssistantMessage("Hello."),),
    )
    assert stage.router.requests == [ASK]
    assert stage.port.streamed_text == "Hello."


@pytest.mark.parametrize("outside", [True, False])
async def test_an_answer_says_whether_words_from_outside_stood_before_it(stage: Stage, outside: bool) -> None:
    """R-49: what is stored of a turn is told from the agent's own words also when a search finds it."""
    page = make_capability(policy=PolicyClass.NETWORK) if outside else make_capability()

    outcome = await stage.play([calls(make_call()), says("It says so.")], page)

    assert outcome.outside == outside


@covers("loop.call-run-continue")
async def test_calls_are_answered_in_order_and_the_model_goes_on(stage: Stage) -> None:
    """Architecture, message-to-reply, step 6: model, calls one after the other, results, model."""
    ran: list[str] = []
    first, second = make_call(number=1), make_call(number=2, page=2)

    outcome = await stage.play(
        [calls(first, second, text="Looking."), says("Found it.")], make_capability(run=counting(ran))
    )

    new = (
        AssistantMessage("Looking.", (first, second)),
        ToolMessage("call00001", "look", "result 1", True),
        ToolMessage("call00002", "look", "result 2", True),
    )
    assert ran == ["call00001", "call00002"]
    assert stage.last_messages == (*ASK.messages, *new)
    assert outcome.new_messages == (*new, AssistantMessage("Found it."))
    assert (outcome.steps, outcome.usage, outcome.tool_failures) == (2, Usage(20, 4), 0)


async def test_pictures_of_a_result_reach_the_model(stage: Stage) -> None:
    """Reference 4, 1.5: images in tool results ride with their result."""
    picture = Image("image/png", b"\x89PNG")

    async def screenshot(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        return ToolResult(True, "taken", (picture,))

    await stage.play([calls(make_call()), says("A cat.")], make_capability(run=screenshot))

    assert stage.last_messages[-1] == ToolMessage("call00001", "look", "taken", True, (picture,))


async def test_bad_call_does_not_keep_its_siblings_from_running(stage: Stage) -> None:
    """PRV-06, PRV-07: unknown, cut off and malformed calls each get their own answer; the others run."""
    ran: list[str] = []
    cut = ToolCall("call00002", "look", {}, problem="arguments cut off at the output limit")
    batch = (make_call("nothing", 1), cut, make_call("look", 3))

    outcome = await stage.play([calls(*batch), says("ok")], make_capability(run=counting(ran)))

    answers = [message for message in stage.last_messages if isinstance(message, ToolMessage)]
    assert ran == ["call00003"]
    assert [answer.call_id for answer in answers] == ["call00001", "call00002", "call00003"]
    assert [answer.ok for answer in answers] == [False, False, True]
    assert answers[1].text == "arguments cut off at the output limit"
    assert outcome.tool_failures == 2


@covers("loop.cap.default")
async def test_hundredth_step_that_still_calls_ends_the_turn_with_all_calls_answered(stage: Stage) -> None:
    """Reference 4, 1.5: at the cap the turn fails; the calls that no model would read are not run."""
    ran: list[str] = []
    script = [calls(make_call(number=step, step=step)) for step in range(1, MAX_STEPS + 1)]

    with pytest.raises(LimitReached) as caught:
        await stage.play(script, make_capability(run=counting(ran)))

    ends = of_kind(stage.seen, ToolCalled)
    assert caught.value.limit == "steps"
    assert len(stage.router.requests) == MAX_STEPS == 100
    assert len(ran) == MAX_STEPS - 1
    assert (len(ends), ends[-1].result) == (MAX_STEPS, "not run: the step limit was reached")


async def test_model_is_told_once_that_it_repeats_itself(stage: Stage) -> None:
    """Reference 4, 1.5: the warning stands in a result that the model really reads, once per call."""
    script = [calls(make_call(number=n)) for n in range(1, 5)]

    await stage.play([*script, says("enough")], make_capability())

    texts = [message.text for message in stage.last_messages if isinstance(message, ToolMessage)]
    assert [REPEATED in text for text in texts] == [False, False, True, False]


async def test_same_call_five_times_in_a_row_ends_the_turn(stage: Stage) -> None:
    """CST-03: a turn that repeats itself for ever is ended, whatever it calls."""
    ran: list[str] = []
    same = tuple(make_call(number=n) for n in range(1, 8))

    with pytest.raises(LimitReached) as caught:
        await stage.play([calls(*same)], make_capability(run=counting(ran)))

    assert caught.value.limit == "repetition"
    assert len(ran) == 4
    assert len(of_kind(stage.seen, ToolCalled)) == len(same)


@pytest.mark.parametrize(
    "nothing",
    [says(""), says(" \n"), says(f" {FAILED}\n"), THOUGHTS_ONLY],
    ids=["blank", "spaces", "marker", "only thoughts"],
)
async def test_empty_answer_is_asked_for_once_more(stage: Stage, nothing: Line) -> None:
    """DLV-14: an attended turn ends with an answer or with an honest failure; one retry comes first."""
    assert (await stage.play([nothing, says("There.")])).text == "There."
    assert stage.router.requests == [ASK, ASK]


@pytest.mark.parametrize(
    "nothing", [says(""), says(STOPPED), failed(ErrorKind.EMPTY)], ids=["blank", "marker", "reported"]
)
async def test_second_empty_answer_is_an_honest_failure(stage: Stage, nothing: Line) -> None:
    """DLV-14: never zero replies without an error. DLV-13: our own marker is no reply."""
    with pytest.raises(ProviderFailed) as caught:
        await stage.play([nothing, nothing])

    assert (caught.value.kind, caught.value.provider, caught.value.model) == (ErrorKind.EMPTY, "fake", "script-1")
    assert stage.port.deltas == []


async def test_other_failures_are_not_asked_again_by_the_loop(stage: Stage) -> None:
    """Reference 4, 2.6: retries are the router's, and there is none after visible output."""
    with pytest.raises(ProviderFailed):
        await stage.play([failed(ErrorKind.TRANSPORT, streamed=True), says("again")])

    assert len(stage.router.requests) == 1


async def test_refusal_without_words_names_the_model(stage: Stage) -> None:
    """A model that declines has ended its turn; asking again would be declined again."""
    with pytest.raises(Declined) as caught:
        await stage.play([says("", finish="refusal")])

    assert caught.value.user_text is not None
    assert "fake/script-1 declined" in caught.value.user_text
    assert len(stage.router.requests) == 1


async def test_refusal_in_words_is_the_answer(stage: Stage) -> None:
    assert (await stage.play([says("I would rather not.", finish="refusal")])).text == "I would rather not."


async def test_answer_cut_at_the_output_limit_says_so_but_is_stored_as_it_is(stage: Stage) -> None:
    """The person learns that there is more; the model's history holds only its own words."""
    outcome = await stage.play([says("Once upon a", finish="length")])

    assert outcome.text.startswith("Once upon a\n\n_(cut off")
    assert outcome.new_messages == (AssistantMessage("Once upon a"),)


async def test_call_written_as_text_is_told_to_the_model_and_never_shown(stage: Stage) -> None:
    """PRV-30: recognised as a failed call; neither the stream nor the reply shows it."""
    written = 'Let me see.\n<tool_call>{"name": "look", "arguments": {}}</tool_call>'

    outcome = await stage.play([says(written), says("Done.")], make_capability())

    call_message, result = stage.last_messages[-2:]
    assert isinstance(call_message, AssistantMessage)
    assert isinstance(result, ToolMessage)
    assert (call_message.text, result.ok) == ("Let me see.", False)
    assert "written as text" in result.text
    assert outcome.text == "Done."
    assert "tool_call" not in stage.port.streamed_text


async def test_internal_element_in_an_answer_is_dropped_and_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """DLV-13: it is left out of stream, reply and history, and the log records that."""
    echoed = "<memory-context>\nLikes tea.\n</memory-context>\nYou like tea."

    outcome = await stage.play([says(echoed)])

    assert (outcome.text, stage.port.streamed_text) == ("You like tea.", "You like tea.")
    assert outcome.new_messages == (AssistantMessage("You like tea."),)
    assert "internal parts left out of an answer: memory-context" in caplog.text


async def test_all_kinds_of_progress_reach_the_port(stage: Stage) -> None:
    """Streaming goes through the port, because it is part of the reply; held text is shown at the end."""

    async def live(request: ChatRequest, on_delta: OnDelta) -> Completion:
        for delta in (ReasoningDelta("hm"), TextDelta("1 "), TextDelta("\n<"), ToolCallDelta("look")):
            on_delta(delta)
        return says("1 \n<")

    await stage.play([live])

    expected = [ReasoningDelta("hm"), TextDelta("1 "), TextDelta("\n"), ToolCallDelta("look"), TextDelta("<")]
    assert stage.port.deltas == expected


async def test_model_call_that_never_ends_fails_its_turn_only(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 2, agent loop: a per-step deadline that fails only its turn."""
    monkeypatch.setattr(loop, "STEP_DEADLINE_S", 0.01)

    async def hang(request: ChatRequest, on_delta: OnDelta) -> Completion:
        await asyncio.Event().wait()
        return says("never")

    with pytest.raises(LimitReached) as caught:
        await stage.play([hang])

    assert caught.value.limit == "step_seconds"
    assert [(call.status, call.error) for call in of_kind(stage.seen, ModelCalled)] == [("error", "step deadline")]


@pytest.mark.parametrize(
    ("line", "status", "tokens"),
    [(says("hi"), "ok", 10), (failed(ErrorKind.TRANSPORT), "error", 0)],
    ids=["ok", "error"],
)
async def test_each_model_call_leaves_one_event(stage: Stage, line: Line, status: str, tokens: int) -> None:
    """House 10: the loop emits one ModelCalled per call, failed ones too."""
    try:
        await stage.play([line])
    except ProviderFailed:
        assert status == "error"

    events = of_kind(stage.seen, ModelCalled)
    assert [(event.provider, event.model, event.status, event.input_tokens) for event in events] == [
        ("fake", "script-1", status, tokens)
    ]


@pytest.mark.parametrize("phase", ["waiting for the model", "model streams", "between calls", "in a tool"])
async def test_stop_is_heard_in_every_phase(stage: Stage, phase: str) -> None:
    """QUE-01 (a) to (c): the turn ends, nothing of it starts afterwards, and each call has its one result."""
    reached, ran = asyncio.Event(), list[str]()

    async def model(request: ChatRequest, on_delta: OnDelta) -> Completion:
        if phase == "model streams":
            on_delta(TextDelta("so"))
        if phase in ("waiting for the model", "model streams"):
            reached.set()
            await asyncio.Event().wait()
        return calls(*(make_call(number=n, n=n) for n in range(1, 4)))

    async def tool(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        ran.append(context.call_id)
        reached.set()
        if phase == "in a tool":
            await asyncio.Event().wait()
        return ToolResult(True, "")

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(stage.play([model], make_capability(run=tool)))
        await reached.wait()
        task.cancel()

    stopped_in_model = phase in ("waiting for the model", "model streams")
    events = [item.event for item in stage.seen.drain()]
    assert task.cancelled()
    assert len(stage.router.requests) == 1
    assert ran == ([] if stopped_in_model else ["call00001"])
    assert [e.status for e in events if isinstance(e, ModelCalled)] == ["cancelled" if stopped_in_model else "ok"]
    ends = [e.call_id for e in events if isinstance(e, ToolCalled)]
    assert ends == ([] if stopped_in_model else ["call00001", "call00002", "call00003"])


KINDS = st.sampled_from(["good", "fails", "raises", "unknown", "malformed", "breaks off"])


def check_pairs(messages: Sequence[ChatMessage]) -> None:
    """Every call is followed by exactly one result, in order, before anything else."""
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert open_calls
            assert message.call_id == open_calls.pop(0)
            continue
        assert open_calls == []
        if isinstance(message, AssistantMessage):
            assert message.text or message.tool_calls
            open_calls = [call.id for call in message.tool_calls]
    assert open_calls == []


@given(script=st.lists(st.lists(KINDS, min_size=1, max_size=4), max_size=6), stop_at=st.integers(0, 30))
def test_any_script_leaves_a_valid_history_and_one_result_per_call(script: list[list[str]], stop_at: int) -> None:
    """CTX-01 to CTX-03: whatever the calls do and whenever the turn is stopped, no call and no result is orphaned."""
    asyncio.run(play_any(script, stop_at))


async def play_any(script: list[list[str]], stop_at: int) -> None:
    number, lines, made = 0, list[Line](), list[str]()
    for batch in script:
        batch_calls: list[ToolCall] = []
        for kind in batch:
            number += 1
            call = make_call("nothing" if kind == "unknown" else "look", number, kind=kind, n=number)
            batch_calls.append(ToolCall(call.id, "look", {}, f"broken {number}") if kind == "malformed" else call)
        lines.append(calls(*batch_calls))
    lines.append(says("end"))
    task: asyncio.Task[Completed] | None = None

    async def tool(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        made.append(context.call_id)
        if len(made) == stop_at and task is not None:
            task.cancel()
        match arguments["kind"]:
            case "raises":
                raise KeyError("x")
            case "breaks off":
                raise asyncio.CancelledError
            case kind:
                return ToolResult(kind == "good", "text")

    events = Events(SystemClock())
    with events.subscribe(1_000) as seen:
        stage = Stage(events, seen)
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            task = group.create_task(stage.play(lines, make_capability(run=tool)))
        for request in stage.router.requests:
            check_pairs(request.messages)
        if not task.cancelled():
            check_pairs(task.result().new_messages)
        asked = [call.id for line in lines[: len(stage.router.requests)] for call in as_completion(line).tool_calls]
        assert sorted(event.call_id for event in of_kind(seen, ToolCalled)) == sorted(asked)


def as_completion(line: Line) -> Completion:
    assert isinstance(line, Completion)
    return line


@pytest.mark.parametrize(
    "error",
    [
        failed(ErrorKind.AUTH),
        AllRoutesFailed((failed(ErrorKind.TIMEOUT), failed(ErrorKind.TRANSPORT))),
        NeedsOperator("no model is configured", advice="run `fermix setup`"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_errors_of_a_router_pass_through_unchanged(stage: Stage, error: FermixError) -> None:
    """The runner turns reasons into sentences; the loop does not guess, and the trace has the failed call."""
    with pytest.raises(FermixError) as caught:
        await stage.play([error])

    assert caught.value is error
    assert [event.error for event in of_kind(stage.seen, ModelCalled)] == [str(error)]


BRIDGES = tool_search.tools(ToolSearchSettings())


@covers("deferral.bridges")
async def test_call_through_the_bridge_is_the_tools_own_for_guard_trace_and_effects(stage: Stage) -> None:
    """Reference 4, 1.5: unwrapped first; the model's own message stays as it wrote it."""
    ran: list[str] = []
    close = make_capability("tickets_close", counting(ran), kind=Kind.MCP, policy=PolicyClass.READ_WRITE)
    direct = make_call("tickets_close", 1, id=7)
    wrapped = [make_call("tool_call", number, name="tickets_close", arguments={"id": 7}) for number in (2, 3)]

    await stage.play([calls(direct, *wrapped), says("closed")], *BRIDGES, close)

    message, *answers = stage.last_messages[1:]
    assert isinstance(message, AssistantMessage)
    assert message.tool_calls == (direct, *wrapped)
    assert ran == ["call00001", "call00002", "call00003"]
    assert stage.port.effects == ["tickets_close"] * 3
    assert [event.name for event in of_kind(stage.seen, ToolCalled)] == ["tickets_close"] * 3
    assert all(isinstance(answer, ToolMessage) and answer.name == "tickets_close" for answer in answers)
    assert [REPEATED in answer.text for answer in answers] == [False, False, True]


@pytest.mark.parametrize("name", ["secret_tool", "nothing"])
async def test_bridge_reaches_nothing_that_the_turn_does_not_have(stage: Stage, name: str) -> None:
    """SBX-15: a name that is not in the turn's own map is unknown, through the bridge as without it."""
    wrapped, direct = make_call("tool_call", 1, name=name, arguments={}), make_call(name, 2)

    await stage.play([calls(wrapped, direct), says("no")], *BRIDGES, make_capability())

    through, itself = (message.text for message in stage.last_messages[-2:])
    assert through == itself == f"unknown or unavailable tool {name!r}"


def too_long() -> ProviderFailed:
    return failed(ErrorKind.CONTEXT_LENGTH)


async def flood(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
    return ToolResult(True, "x" * 20_000)


@pytest.mark.parametrize("refusals", [1, 2, 3])
async def test_refused_request_is_asked_again_with_shortened_results(stage: Stage, refusals: int) -> None:
    """Reference 4, 1.5: older steps, the two before, the current one; the turn goes on."""
    steps = [calls(make_call(number=number, n=number)) for number in range(1, 5)]
    script: list[Line] = [*steps, *[too_long()] * refusals, says("done")]

    outcome = await stage.play(script, make_capability(run=flood), *recall.tools())

    texts = [message.text for message in outcome.new_messages if isinstance(message, ToolMessage)]
    shortened = [len(text) < 2_000 for text in texts]
    assert outcome.text == "done"
    assert shortened.count(True) == {1: 1, 2: 3, 3: 4}[refusals]
    assert shortened == sorted(shortened, reverse=True)
    assert len(stage.router.requests) == 4 + refusals + 1


async def test_request_that_stays_too_long_fails_and_says_why(stage: Stage) -> None:
    """Reference 4, 1.4: it read more than fits even when shortened; not "this conversation", which /new would mend."""
    script: list[Line] = [calls(make_call()), too_long(), too_long(), says("never")]

    with pytest.raises(LimitReached) as caught:
        await stage.play(script, make_capability(run=flood))

    assert caught.value.limit == "tool_output"
    assert sentence_for(caught.value) == LIMITS["tool_output"]
    assert len(stage.router.requests) == 3


async def test_request_with_nothing_to_shorten_fails_as_it_is(stage: Stage) -> None:
    """CTX-05: no progress is no attempt."""
    with pytest.raises(ProviderFailed):
        await stage.play([calls(make_call()), too_long(), says("never")], make_capability())

    assert len(stage.router.requests) == 2


async def test_model_reads_back_what_was_shortened(stage: Stage) -> None:
    """Reference 4, 1.5: `tool_result_recall` gives the original of this turn."""

    async def numbers(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        return ToolResult(True, "".join(f"{number}," for number in range(5_000)))

    back = make_call("tool_result_recall", 2, call_id="call00001", offset=10_000, limit=60)
    script: list[Line] = [calls(make_call()), too_long(), calls(back), says("done")]

    await stage.play(script, make_capability(run=numbers), *recall.tools())

    last = stage.last_messages[-1]
    assert isinstance(last, ToolMessage)
    assert "2222,2223," in last.text


async def test_window_is_that_of_the_model_that_answered(stage: Stage) -> None:
    """A turn that moved to a smaller model is measured by that one's window."""
    small = replace(FACTS, context_tokens=20_000)
    other = Route("fake", "small")

    def by_small(number: int) -> Completion:
        return replace(calls(make_call(number=number, n=number)), model="small", usage=Usage(number * 5_000, 10))

    stage.router = ScriptedRouter([*map(by_small, range(1, 6)), says("done")])
    stage.router.routes = (*stage.router.routes, ScriptedRoute(stage.router, small, other))
    outcome = await stage.run(make_capability(run=flood))

    shortened = [len(m.text) < 2_000 for m in outcome.new_messages if isinstance(m, ToolMessage)]
    assert shortened == [True, True, False, False, False]


def speaking(ran: list[str], *, ends: bool = False, ok: bool = True) -> Capability:
    """A tool that says something in the chat."""

    async def run(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        ran.append(context.call_id)
        return ToolResult(ok, "sent" if ok else "not sent")

    return replace(make_capability("react", run, category=CHANNEL), ends_turn=ends)


async def test_one_thing_is_sent_to_the_chat_in_a_step_and_the_others_run(stage: Stage) -> None:
    """Reference 4, 1.5: the first; each later one is told to come again in the next step."""
    ran: list[str] = []
    step = [make_call("react", 1), make_call("look", 2), make_call("react", 3)]
    outcome = await stage.play(
        [calls(*step), calls(make_call("react", 4)), says("ok")],
        speaking(ran),
        make_capability(run=counting(ran)),
    )

    results = [message for message in outcome.new_messages if isinstance(message, ToolMessage)]
    assert ran == ["call00001", "call00002", "call00004"]
    assert [(result.ok, ONE_A_STEP in result.text) for result in results] == [
        (True, False), (True, False), (False, True), (True, False),
    ]  # fmt: skip
    assert len(of_kind(stage.seen, ToolCalled)) == 4


async def test_a_first_one_that_fails_was_the_one_of_its_step(stage: Stage) -> None:
    ran: list[str] = []
    await stage.play([calls(make_call("react", 1), make_call("react", 2)), says("ok")], speaking(ran, ok=False))

    assert ran == ["call00001"]


async def test_a_reaction_alone_and_without_words_ends_the_turn(stage: Stage) -> None:
    """Reference 4, 1.5: no further model call, an empty reply, a marker for the next turn."""
    outcome = await stage.play([calls(make_call("react"))], speaking([], ends=True))

    assert len(stage.router.requests) == 1
    assert outcome == Completed(
        text="",
        model="fake/script-1",
        peak=RequestSize(10, measured=True),
        usage=Usage(10, 2),
        steps=1,
        new_messages=(
            AssistantMessage("", (make_call("react"),)),
            ToolMessage("call00001", "react", "sent", True),
            AssistantMessage(WORDLESS),
        ),
    )


@pytest.mark.parametrize(
    ("step", "tool"),
    [
        (calls(make_call("react"), text="Nice!"), speaking([], ends=True)),
        (calls(make_call("react"), make_call("react", 2)), speaking([], ends=True)),
        (calls(make_call("react")), speaking([], ends=True, ok=False)),
        (calls(make_call("react")), speaking([])),
    ],
    ids=["with words", "not alone", "failed", "no such tool"],
)
async def test_any_other_step_goes_on(stage: Stage, step: Line, tool: Capability) -> None:
    outcome = await stage.play([step, says("done")], tool)

    assert (outcome.text, len(stage.router.requests)) == ("done", 2)


async def test_who_has_sent_something_need_not_say_more(stage: Stage) -> None:
    """Reference 3: a blank response after a delivered file closes the turn with a marker and sends nothing."""
    outcome = await stage.play([calls(make_call("react")), THOUGHTS_ONLY], speaking([]))

    assert outcome.text == ""
    assert outcome.new_messages[-1] == AssistantMessage(WORDLESS)
    assert len(stage.router.requests) == 2


async def test_who_has_sent_nothing_must_say_something(stage: Stage) -> None:
    outcome = await stage.play([calls(make_call("react")), THOUGHTS_ONLY, says("sorry")], speaking([], ok=False))

    assert outcome.text == "sorry"
