"""One route over HTTP: what it sends again after a refusal, what it reads from odd servers, how it waits."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from fermix.agent.model import (
    AssistantMessage,
    ChatRequest,
    Completion,
    Delta,
    Image,
    JsonValue,
    Reasoning,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from fermix.agent.providers import stream
from fermix.agent.providers.answer import MOST_CHARS
from fermix.agent.providers.anthropic import MessagesWire
from fermix.agent.providers.catalog import local_provider
from fermix.agent.providers.openai_chat import ChatWire
from fermix.agent.providers.openai_responses import ResponsesWire
from fermix.agent.providers.provider import Endpoint, ErrorKind, ModelFacts, NothingListens, ProviderFailed, Route
from fermix.agent.providers.remote import UNSEEN, RemoteProvider
from fermix.agent.providers.stream import Patience
from fermix.agent.providers.wire import Wire
from fermix.errors import NeedsOperator
from fermix.net import Net
from fermix.protocol.frames import encode
from fermix.protocol.methods import MAX_LINE_BYTES
from tests.fakes.provider import Answer, ScriptedProvider, failure
from tests.fakes.raw_server import serving

FACTS = ModelFacts(100_000, 8_000, None)
HELLO = ChatRequest((), (UserMessage("hello"),))
SHELL = ToolSchema("shell", "Run.", {"type": "object", "properties": {}, "required": ["command"]})


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    async with Net.open(loopback_only=True) as net:
        yield net


def make(fake: ScriptedProvider, net: Net, wire: Wire, patience: Patience = Patience()) -> RemoteProvider:  # noqa: B008
    return RemoteProvider(Route("scripted", "scripted-1"), FACTS, wire, fake_end(fake), net, patience)


def fake_end(fake: ScriptedProvider) -> Callable[[], Awaitable[Endpoint]]:
    async def endpoint() -> Endpoint:
        return Endpoint(fake.base_url, None)

    return endpoint


async def ask(provider: RemoteProvider, request: ChatRequest = HELLO) -> Completion:
    async with asyncio.timeout(5):
        return await provider.complete(request, lambda delta: None)


async def fail(provider: RemoteProvider, request: ChatRequest = HELLO) -> ProviderFailed:
    with pytest.raises(ProviderFailed) as caught:
        await ask(provider, request)
    return caught.value


def chunks(*deltas: object, finish: str | None = "stop") -> bytes:
    """A Chat Completions stream of these deltas."""
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def call(arguments: str, *, name: str = "shell", index: int | None = 0, key: str = "c1") -> dict[str, object]:
    where = {} if index is None else {"index": index}
    return {"tool_calls": [{**where, "id": key, "function": {"name": name, "arguments": arguments}}]}


async def calls_of(net: Net, raw: bytes) -> Sequence[ToolCall]:
    async with ScriptedProvider([Answer(raw=raw)]) as fake:
        return (await ask(make(fake, net, ChatWire()), ChatRequest((), HELLO.messages, (SHELL,)))).tool_calls


async def test_a_field_the_server_refuses_is_left_out_once_and_for_all(net: Net) -> None:
    """PRV-15."""
    refusal = failure(
        400, "Unsupported parameter: 'temperature' is not supported with this model.", param="temperature"
    )
    async with ScriptedProvider([refusal, Answer(text="ok"), Answer(text="ok")]) as fake:
        provider = make(fake, net, ChatWire(fields={"temperature": 0.0}))
        await ask(provider)
        await ask(provider)

    assert ["temperature" in request.body for request in fake.requests] == [True, False, False]


async def test_a_refused_field_is_found_in_the_sentence_too(net: Net) -> None:
    refusal = failure(422, "Extra inputs are not permitted: stream_options")
    async with ScriptedProvider([refusal, Answer(text="ok")]) as fake:
        await ask(make(fake, net, ChatWire()))

    assert ["stream_options" in request.body for request in fake.requests] == [True, False]


async def test_a_part_of_a_field_that_is_refused_takes_the_field_along(net: Net) -> None:
    refusal = failure(400, "Your organization must be verified to generate summaries.", param="reasoning.summary")
    async with ScriptedProvider([refusal, Answer(text="ok")]) as fake:
        await ask(make(fake, net, ResponsesWire()))

    assert ["reasoning" in request.body for request in fake.requests] == [True, False]


LOOKED = ChatRequest(
    (),
    (
        *HELLO.messages,
        AssistantMessage("", (ToolCall("aaaaaaaaa", "file_read", {"path": "p"}),)),
        ToolMessage("aaaaaaaaa", "file_read", "p is a PNG picture", True, (Image("image/png", b"pixels"),)),
    ),
)


async def test_a_picture_that_a_tool_found_does_not_fail_the_turn_of_a_model_that_reads_only(net: Net) -> None:
    async with ScriptedProvider([Answer(text="ok")]) as fake:
        provider = make(fake, net, ChatWire())
        blind = RemoteProvider(
            provider.route, ModelFacts(100_000, 8_000, False), ChatWire(), fake_end(fake), net, Patience()
        )
        await ask(blind, LOOKED)

    assert "pixels" not in json.dumps(fake.requests[0].body)
    assert UNSEEN in json.dumps(fake.requests[0].body)


async def test_a_model_that_refuses_pictures_is_asked_again_without_those_of_tools(net: Net) -> None:
    """Learned once: the next step does not try again."""
    refusal = failure(400, "This model does not support image input.")
    async with ScriptedProvider([refusal, Answer(text="ok"), Answer(text="ok")]) as fake:
        provider = make(fake, net, ChatWire())
        await ask(provider, LOOKED)
        await ask(provider, LOOKED)

    assert ["image_url" in json.dumps(request.body) for request in fake.requests] == [True, False, False]


async def test_a_picture_of_the_user_still_looks_for_a_model_that_sees(net: Net) -> None:
    shown = ChatRequest((), (UserMessage("what is this?", (Image("image/png", b"pixels"),)),))
    async with ScriptedProvider([failure(400, "This model does not support image input.")]) as fake:
        failed = await fail(make(fake, net, ChatWire()), shown)

    assert failed.kind is ErrorKind.IMAGE_UNSUPPORTED


async def test_a_field_we_cannot_do_without_is_not_taken_away(net: Net) -> None:
    refusal = failure(400, "Unsupported parameter: 'messages'", param="messages")
    async with ScriptedProvider([refusal]) as fake:
        failed = await fail(make(fake, net, ChatWire()))

    assert (failed.kind, len(fake.requests)) == (ErrorKind.REFUSED_REQUEST, 1)


async def test_refused_reasoning_is_dropped_and_sent_once_more(net: Net) -> None:
    """PRV-14: an old signature bricks no conversation, and a second refusal is final."""
    item: dict[str, JsonValue] = {"type": "thinking", "thinking": "old", "signature": "stale"}
    called = AssistantMessage("", (ToolCall("abcdefgh1", "shell", {}),), Reasoning("scripted", "scripted-1", (item,)))
    request = ChatRequest((), (UserMessage("hi"), called, ToolMessage("abcdefgh1", "shell", "ok", True)))
    refusal = failure(400, "messages.1.content.0: Invalid `signature` in `thinking` block")
    async with ScriptedProvider([refusal, Answer(text="ok"), refusal, refusal]) as fake:
        completion = await ask(make(fake, net, MessagesWire()), request)
        failed = await fail(make(fake, net, MessagesWire()), request)

    assert completion.text == "ok"
    assert [b"stale" in asked.raw for asked in fake.requests] == [True, False, True, False]
    assert failed.kind is ErrorKind.REFUSED_REQUEST


async def test_an_error_inside_the_stream_is_a_failure_and_runs_nothing(net: Net) -> None:
    """PRV-02: after half a tool call; the text is the server's."""
    error = b'data: {"choices":[],"error":{"code":502,"message":"provider unavailable"}}\n\n'
    async with ScriptedProvider([Answer(raw=chunks(call('{"command":'), finish=None) + error)]) as fake:
        failed = await fail(make(fake, net, ChatWire()))

    assert (failed.kind, failed.server_text) == (ErrorKind.UNAVAILABLE, "provider unavailable")


async def test_a_finish_reason_that_says_error_is_a_failure(net: Net) -> None:
    """PRV-02."""
    async with ScriptedProvider([Answer(raw=chunks(call('{"command":'), finish="error"))]) as fake:
        failed = await fail(make(fake, net, ChatWire()))

    assert failed.kind is ErrorKind.UNAVAILABLE


@pytest.mark.parametrize(
    "deltas",
    [
        [call('{"a":1}{"a":1}')],
        [call('{"a":1}'), call('{"a":1}')],
        [call('{"a"'), call('{"a":1}')],
        [call('{"a":'), call("1}", name="")],
        [call('{"a":1}', index=None), call("", index=None, name="")],
    ],
    ids=["doubled", "sent twice", "growing", "in pieces", "without an index"],
)
async def test_values_that_are_sent_whole_again_are_not_doubled(net: Net, deltas: list[object]) -> None:
    """PRV-05: names and arguments."""
    (made,) = await calls_of(net, chunks(*deltas, finish="tool_calls"))

    assert (made.name, dict(made.arguments), made.problem) == ("shell", {"a": 1}, None)


async def test_two_calls_under_one_index_are_two_calls(net: Net) -> None:
    made = await calls_of(net, chunks(call('{"a":1}', key="c1"), call('{"a":2}', key="c2"), finish="tool_calls"))

    assert [dict(one.arguments) for one in made] == [{"a": 1}, {"a": 2}]


async def test_a_nested_object_in_pieces_is_not_taken_for_a_repeat(net: Net) -> None:
    (made,) = await calls_of(net, chunks(call('{"a":'), call('{"a":1}}', name=""), finish="tool_calls"))

    assert made.arguments == {"a": {"a": 1}}


async def test_a_megabyte_of_broken_arguments_is_not_echoed(net: Net) -> None:
    """PRV-07."""
    (made,) = await calls_of(net, chunks(call('{"command":"' + "x" * 1_000_000), finish="tool_calls"))

    assert len(made.problem or "") < 400


async def test_endless_nesting_is_a_problem_of_that_call(net: Net) -> None:
    (made,) = await calls_of(net, chunks(call('{"a":' + "[" * 100_000), finish="tool_calls"))

    assert "not valid JSON" in (made.problem or "")


@pytest.mark.parametrize(("levels", "fits"), [(99, True), (100, False), (400, False), (950, False)])
async def test_what_is_read_can_be_written_again_from_any_depth_of_calls(net: Net, levels: int, fits: bool) -> None:
    """Arguments that could be read and not be sent back failed every later turn of their conversation."""
    nested = "[" * levels + "]" * levels
    (made,) = await calls_of(net, chunks(call(f'{{"a":{nested}}}'), finish="tool_calls"))

    assert (made.problem is None) == fits
    assert fits or "nested too deeply" in (made.problem or "")
    assert bool(made.arguments) == fits


async def test_a_long_flat_list_is_not_deep(net: Net) -> None:
    (made,) = await calls_of(net, chunks(call('{"a":[' + ",".join(["[1]"] * 500) + "]}"), finish="tool_calls"))

    assert made.problem is None


async def test_a_server_that_does_not_stream_is_read_whole(net: Net) -> None:
    body = {"choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]}
    async with ScriptedProvider([Answer(raw=json.dumps(body).encode(), content_type="application/json")]) as fake:
        completion = await ask(make(fake, net, ChatWire()))

    assert completion.text == "hi"


async def test_an_answer_without_end_is_cut_where_it_fits_into_a_line_of_our_socket(net: Net) -> None:
    endless = chunks(*[{"content": "\0" * 100_000}] * 20, {"content": "never read"})
    async with ScriptedProvider([Answer(raw=endless)]) as fake:
        completion = await ask(make(fake, net, ChatWire()))

    assert (completion.finish, len(completion.text)) == ("length", MOST_CHARS)
    assert len(encode({"text": completion.text})) < MAX_LINE_BYTES


async def test_thoughts_without_end_are_no_answer(net: Net) -> None:
    async with ScriptedProvider([Answer(raw=chunks(*[{"reasoning": "x" * 100_000}] * 20))]) as fake:
        failed = await fail(make(fake, net, ChatWire()))

    assert failed.kind is ErrorKind.EMPTY


async def test_a_stream_without_end_is_given_up(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MOST_STREAM_BYTES", 10_000)
    async with ScriptedProvider([Answer(raw=chunks(*[call("x" * 100)] * 100))]) as fake:
        failed = await fail(make(fake, net, ChatWire()))

    assert (failed.kind, "never ends" in failed.server_text) == (ErrorKind.MALFORMED, True)


async def test_halves_of_a_surrogate_pair_are_joined(net: Net) -> None:
    async with ScriptedProvider([Answer(raw=chunks({"content": "\ud83d"}, {"content": "\ude00 \ud83d"}))]) as fake:
        completion = await ask(make(fake, net, ChatWire()))

    assert completion.text == "\U0001f600 \ufffd"


@pytest.mark.parametrize("sign", [b": still working\n\n", b'data: {"type": "ping"}\n\n'], ids=["comment", "ping"])
async def test_signs_of_life_hold_the_connection_but_not_the_turn(net: Net, sign: bytes) -> None:
    """PRV-23: keep-alive comments and pings are no part of an answer."""

    async def only_signs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        while True:
            writer.write(sign)
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(only_signs) as url:

        async def endpoint() -> Endpoint:
            return Endpoint(url, None)

        patience = Patience(chunk_s=1.0, news_s=0.1)
        failed = await fail(RemoteProvider(Route("a", "m"), FACTS, ChatWire(), endpoint, net, patience))

    assert failed.kind is ErrorKind.TIMEOUT


async def test_a_slow_stream_is_not_a_silent_one(net: Net) -> None:
    """PRV-23: the idle bound is not the total bound."""
    hold = asyncio.Event()
    seen: list[object] = []
    async with ScriptedProvider([Answer(text="first and second half", hold=hold)]) as fake:
        provider = make(fake, net, ChatWire(), Patience(chunk_s=2.0, news_s=2.0, total_s=5.0))

        def show(delta: object) -> None:
            seen.append(delta)
            hold.set()

        async with asyncio.timeout(5):
            completion = await provider.complete(HELLO, show)

    assert completion.text == "first and second half"
    assert TextDelta("first") in seen


async def test_what_was_complete_before_the_connection_broke_is_kept(net: Net) -> None:
    raw = chunks({"content": "whole"})
    async with ScriptedProvider([Answer(raw=raw, cut_bytes=len(raw))]) as fake:
        completion = await ask(make(fake, net, ChatWire()))

    assert completion.text == "whole"


async def test_nobody_listening_is_a_transport_failure(net: Net) -> None:
    async with ScriptedProvider() as fake:
        provider = make(fake, net, ChatWire())
    failed = await fail(provider)

    assert (failed.kind, failed.streamed) == (ErrorKind.TRANSPORT, False)
    assert "127.0.0.1" in failed.server_text


async def test_a_local_engine_is_asked_for_its_address_before_each_call(net: Net) -> None:
    async with ScriptedProvider([Answer(text="ok"), Answer(text="ok")]) as fake:
        asked = 0

        async def endpoint() -> Endpoint:
            nonlocal asked
            asked += 1
            return Endpoint(fake.base_url, None)

        provider = local_provider(endpoint, net)
        await ask(provider)
        await ask(provider)

    assert (asked, fake.requests[0].body["temperature"], provider.facts.compact) == (2, 0.0, True)


async def test_an_engine_that_is_not_there_speaks_for_itself(net: Net) -> None:
    async def endpoint() -> Endpoint:
        raise NeedsOperator("the local model is not here yet", advice="run `fermix model fetch`")

    with pytest.raises(NeedsOperator, match="fermix model fetch"):
        await ask(local_provider(endpoint, net))


class Canary:
    def reveal(self) -> str:
        return "sk-canary-8841"


async def test_no_failure_and_no_log_line_holds_the_key(net: Net, caplog: pytest.LogCaptureFixture) -> None:
    """SEC-01: every log at its finest, every kind of failure, a server that repeats what it got."""
    caplog.set_level(logging.DEBUG)
    script = [failure(401, "bad key sk-canary-8841"), failure(500, "sk-canary-8841"), Answer(text="cut", cut_bytes=20)]
    failures: list[ProviderFailed] = []
    async with ScriptedProvider(script) as fake:

        async def endpoint() -> Endpoint:
            return Endpoint(fake.base_url, Canary())

        provider = RemoteProvider(Route("a", "m"), FACTS, ChatWire(), endpoint, net, Patience())
        failures += [await fail(provider) for _ in script]
    failures.append(await fail(provider))

    traces = "".join("".join(traceback.format_exception(error)) for error in failures)
    assert [asked.headers["authorization"] for asked in fake.requests] == ["Bearer sk-canary-8841"] * 3
    assert "canary" not in traces + caplog.text


async def test_an_output_limit_is_named_as_the_wire_wants_it(net: Net) -> None:
    request = ChatRequest((), HELLO.messages, max_output_tokens=50)
    wires: list[Wire] = [ChatWire(limit_field="max_completion_tokens"), ResponsesWire(), MessagesWire()]
    async with ScriptedProvider([Answer(text="ok")], repeat=True) as fake:
        for wire in wires:
            await ask(make(fake, net, wire), request)

    fields = ("max_completion_tokens", "max_output_tokens", "max_tokens")
    assert [asked.body[field] for asked, field in zip(fake.requests, fields, strict=True)] == [50, 50, 50]


async def test_xai_gets_no_enum_with_a_slash(net: Net) -> None:
    """Reference 4, section 2.2."""
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"kind": {"enum": ["text/plain", "plain"]}}}
    request = ChatRequest((), HELLO.messages, (ToolSchema("save", "Save.", schema),))
    async with ScriptedProvider([Answer(text="ok")]) as fake:
        await ask(make(fake, net, ResponsesWire(takes_slashes=False)), request)

    assert fake.requests[0].body["tools"][0]["parameters"]["properties"]["kind"]["enum"] == ["plain"]


@pytest.mark.parametrize(
    ("deltas", "kept"),
    [
        ([{"reasoning_content": "h"}, {"reasoning_content": "m"}], {"reasoning_content": "hm"}),
        ([{"reasoning": "h"}, {"reasoning": "m"}], {"reasoning": "hm"}),
        (
            [
                {"reasoning": "h", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "h"}]},
                {"reasoning": "m", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "m"}]},
                {"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "s"}]},
                {"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "d"}]},
            ],
            {
                "reasoning_details": [
                    {"type": "reasoning.text", "index": 0, "text": "hm", "signature": "s"},
                    {"type": "reasoning.encrypted", "index": 1, "data": "d"},
                ]
            },
        ),
    ],
    ids=["reasoning_content", "reasoning", "reasoning_details"],
)
async def test_reasoning_is_kept_under_the_name_it_came_with(
    net: Net, deltas: list[object], kept: dict[str, JsonValue]
) -> None:
    """PRV-13: raw JSON, to be given back as it came; shown once."""
    seen: list[Delta] = []
    async with ScriptedProvider([Answer(raw=chunks(*deltas, {"content": "4"}))]) as fake:
        async with asyncio.timeout(5):
            completion = await make(fake, net, ChatWire()).complete(HELLO, seen.append)

    assert completion.reasoning == Reasoning("scripted", "scripted-1", (kept,))
    assert "".join(delta.text for delta in seen if isinstance(delta, ReasoningDelta)) == "hm"


async def test_a_server_of_this_machine_that_does_not_run_is_named_by_its_address(net: Net) -> None:
    """Who forgot to start it is not sent to look at the network."""
    route = Route("ollama", "m")

    async def endpoint() -> Endpoint:
        return Endpoint("http://127.0.0.1:1/v1", None)

    with pytest.raises(NothingListens) as caught:
        await RemoteProvider(route, FACTS, ChatWire(), endpoint, net, Patience()).complete(HELLO, lambda _: None)

    assert (caught.value.address, caught.value.kind) == ("127.0.0.1:1", ErrorKind.TRANSPORT)
