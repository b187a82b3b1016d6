"""One suite for every provider: what each must do over real HTTP, whatever its wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from fermix.agent.model import (
    ChatRequest,
    Completion,
    Delta,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolSchema,
    Usage,
    UserMessage,
)
from fermix.agent.providers.catalog import PROVIDERS, ProviderSpec
from fermix.agent.providers.models import find_model
from fermix.agent.providers.provider import Endpoint, ErrorKind, ModelFacts, ProviderFailed, Route
from fermix.agent.providers.remote import RemoteProvider
from fermix.agent.providers.stream import Patience
from fermix.agent.providers.wire import Wire
from fermix.net import Net
from tests.fakes.provider import Answer, Call, ScriptedProvider, failure


def _wire_of(spec: ProviderSpec) -> Wire:
    model = spec.models[0] if spec.models else find_model(spec.id, "any")
    return spec.choose_wire(spec.base_url or "http://127.0.0.1:1/v1", model)


WIRES: dict[str, Wire] = {spec.id: _wire_of(spec) for spec in PROVIDERS}
HELLO = ChatRequest(system=("You are Fermix.",), messages=(UserMessage("hello"),))
LIST = ToolSchema(
    "glob_search",
    "List files.",
    {"type": "object", "properties": {"pattern": {"type": "string"}}, "required": ["pattern"]},
)
WITH_TOOL = ChatRequest(system=HELLO.system, messages=HELLO.messages, tools=(LIST,))
PATIENT = Patience()
FACTS = ModelFacts(context_tokens=100_000, max_output_tokens=8_000, vision=None)


class Key:
    def reveal(self) -> str:
        return "sk-canary-5512"


@dataclass
class Rig:
    """A provider of the catalog in front of whatever server a test starts."""

    provider: str
    net: Net
    deltas: list[Delta]
    begun: asyncio.Event

    async def ask(
        self, fake: ScriptedProvider, request: ChatRequest = HELLO, patience: Patience = PATIENT
    ) -> Completion:
        async def endpoint() -> Endpoint:
            return Endpoint(fake.base_url, Key())

        route = Route("scripted", "scripted-1")
        provider = RemoteProvider(route, FACTS, WIRES[self.provider], endpoint, self.net, patience)
        async with asyncio.timeout(5):
            return await provider.complete(request, self._take)

    def _take(self, delta: Delta) -> None:
        self.deltas.append(delta)
        self.begun.set()

    async def fail(self, fake: ScriptedProvider, patience: Patience = PATIENT) -> ProviderFailed:
        with pytest.raises(ProviderFailed) as caught:
            await self.ask(fake, patience=patience)
        return caught.value

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas if isinstance(delta, TextDelta))

    @property
    def thoughts(self) -> str:
        return "".join(delta.text for delta in self.deltas if isinstance(delta, ReasoningDelta))


@pytest.fixture(params=WIRES)
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    async with Net.open(loopback_only=True) as net:
        yield Rig(request.param, net, [], asyncio.Event())


async def test_text_streams_and_comes_whole(rig: Rig) -> None:
    async with ScriptedProvider([Answer(text="Hello, world. Grüße, 你好 😀")]) as fake:
        completion = await rig.ask(fake)

    assert completion == Completion(
        "Hello, world. Grüße, 你好 😀", (), Usage(11, 7), "stop", "scripted", "scripted-1", None
    )
    assert rig.text == completion.text
    assert len(rig.deltas) > 3
    assert fake.requests[0].headers["user-agent"].startswith("fermix/")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_chunk_boundaries_change_nothing(rig: Rig, size: int) -> None:
    """PRV-03: network chunks end anywhere, inside a character included."""
    async with ScriptedProvider(
        [Answer(text="é 你 😀", calls=(Call("glob_search", {"pattern": "*é"}),), chunk_bytes=size)]
    ) as fake:
        completion = await rig.ask(fake, WITH_TOOL)

    assert completion.text == "é 你 😀"
    assert completion.tool_calls[0].arguments == {"pattern": "*é"}


async def test_tool_calls_arrive_in_order_with_our_ids(rig: Rig) -> None:
    """PRV-10: ids are ours, nine alphanumerics, whatever the server calls them."""
    calls = (Call("glob_search", {"pattern": "*.md"}), Call("glob_search", {"pattern": "*.py"}))
    async with ScriptedProvider([Answer(text="Looking.", calls=calls)]) as fake:
        completion = await rig.ask(fake, WITH_TOOL)

    assert [dict(call.arguments) for call in completion.tool_calls] == [{"pattern": "*.md"}, {"pattern": "*.py"}]
    assert all(len(call.id) == 9 and call.id.isalnum() for call in completion.tool_calls)
    assert len({call.id for call in completion.tool_calls}) == 2
    assert completion.finish == "tool_calls"
    assert rig.deltas.count(ToolCallDelta("glob_search")) == 2


async def test_reasoning_is_shown_and_is_no_part_of_the_text(rig: Rig) -> None:
    async with ScriptedProvider([Answer(text="4", reasoning="two and two")]) as fake:
        completion = await rig.ask(fake)

    assert completion.text == "4"
    assert rig.thoughts == "two and two"
    assert completion.reasoning is not None
    assert (completion.reasoning.provider, completion.reasoning.model) == ("scripted", "scripted-1")


async def test_usage_says_how_much_was_cached(rig: Rig) -> None:
    answer = Answer(text="ok", input_tokens=900, output_tokens=3, cached_tokens=800)
    async with ScriptedProvider([answer]) as fake:
        completion = await rig.ask(fake)

    assert completion.usage == Usage(900, 3, 800)


@pytest.mark.parametrize(
    "arguments", ['{"pattern": "a"', "[1]", "null", '"x"', '{"pattern":1,}', "", "NaN", '{"n":1e999}']
)
async def test_arguments_that_are_no_object_become_a_problem(rig: Rig, arguments: str) -> None:
    """PRV-07: never replaced by an empty object and run; a sibling in the same answer still runs."""
    calls = (Call("glob_search", arguments), Call("glob_search", {"pattern": "*"}))
    async with ScriptedProvider([Answer(calls=calls)]) as fake:
        broken, whole = (await rig.ask(fake, WITH_TOOL)).tool_calls

    assert broken.problem is not None
    assert broken.arguments == {}
    assert len(broken.problem) < 400
    assert (whole.problem, whole.arguments) == (None, {"pattern": "*"})


async def test_no_arguments_are_fine_for_a_tool_that_needs_none(rig: Rig) -> None:
    """PRV-07: the empty string is an empty object only then."""
    tool = ToolSchema("now", "Say the time.", {"type": "object", "properties": {}})
    async with ScriptedProvider([Answer(calls=(Call("now", ""),))]) as fake:
        completion = await rig.ask(fake, ChatRequest((), (UserMessage("time?"),), (tool,)))

    assert (completion.tool_calls[0].problem, completion.tool_calls[0].arguments) == (None, {})


async def test_arguments_cut_at_the_output_limit_never_run(rig: Rig) -> None:
    """PRV-06: the model is told so instead."""
    async with ScriptedProvider([Answer(calls=(Call("glob_search", '{"pattern": "*.'),), finish="length")]) as fake:
        completion = await rig.ask(fake, WITH_TOOL)

    assert completion.finish == "length"
    assert "cut off at the output limit" in (completion.tool_calls[0].problem or "")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (failure(401, "invalid api key"), ErrorKind.AUTH),
        (failure(403, "forbidden"), ErrorKind.AUTH),
        (failure(402, "payment required"), ErrorKind.QUOTA),
        (failure(429, "insufficient_quota"), ErrorKind.QUOTA),
        (failure(429, "slow down"), ErrorKind.RATE_LIMIT),
        (failure(408, "took too long"), ErrorKind.TIMEOUT),
        (failure(500, "oops"), ErrorKind.UNAVAILABLE),
        (failure(529, "overloaded_error"), ErrorKind.UNAVAILABLE),
        (failure(400, "prompt is too long: 210000 tokens > 200000 maximum"), ErrorKind.CONTEXT_LENGTH),
        (failure(404, "The model `nope` does not exist"), ErrorKind.MODEL_NOT_FOUND),
        (failure(400, "this model does not support image input"), ErrorKind.IMAGE_UNSUPPORTED),
        (failure(400, "bad field"), ErrorKind.REFUSED_REQUEST),
    ],
)
async def test_refusals_are_sorted_and_keep_the_servers_words(rig: Rig, answer: Answer, kind: ErrorKind) -> None:
    async with ScriptedProvider([answer]) as fake:
        failed = await rig.fail(fake)

    assert (failed.kind, failed.status, failed.streamed) == (kind, answer.status, False)
    assert failed.server_text
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"retry-after": "soon"}, None),
    ],
)
async def test_the_servers_wish_to_wait_is_read(rig: Rig, headers: dict[str, str], seconds: float | None) -> None:
    """PRV-22: seconds, milliseconds or a date."""
    async with ScriptedProvider([failure(429, "slow down", headers=headers)]) as fake:
        failed = await rig.fail(fake)

    assert failed.retry_after_s == seconds


async def test_a_stream_that_breaks_off_is_a_failure(rig: Rig) -> None:
    async with ScriptedProvider([Answer(text="a long answer that never ends", cut_bytes=600)]) as fake:
        failed = await rig.fail(fake)

    assert (failed.kind, failed.streamed) == (ErrorKind.TRANSPORT, bool(rig.deltas))


@pytest.mark.parametrize(
    ("raw", "content_type"),
    [
        (b"<!doctype html><title>Sign in</title>", "text/html"),
        (b"<html>portal</html>", "text/event-stream"),
        (b"data: {not json\n\n", "text/event-stream"),
        (b"data: [1, 2]\n\n", "text/event-stream"),
        (b"not an answer", "application/json"),
        (b"", "text/event-stream"),
    ],
)
async def test_what_is_no_answer_is_a_clear_failure(rig: Rig, raw: bytes, content_type: str) -> None:
    async with ScriptedProvider([Answer(raw=raw, content_type=content_type)]) as fake:
        failed = await rig.fail(fake)

    assert failed.kind in (ErrorKind.MALFORMED, ErrorKind.TRANSPORT)
    assert failed.server_text


async def test_an_empty_completion_is_a_failure(rig: Rig) -> None:
    async with ScriptedProvider([Answer()]) as fake:
        failed = await rig.fail(fake)

    assert failed.kind is ErrorKind.EMPTY


async def test_leaving_in_the_middle_closes_the_connection(rig: Rig) -> None:
    async with ScriptedProvider([Answer(text="first and second half", hold=asyncio.Event())]) as fake:
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(rig.ask(fake))
            await rig.begun.wait()
            asking.cancel()
        async with asyncio.timeout(5):
            await fake.drop.wait()

    assert asking.cancelled()
    assert fake.dropped == 1


async def test_silence_is_bounded(rig: Rig) -> None:
    """PRV-23: no byte for too long."""
    async with ScriptedProvider([Answer(text="first and second half", hold=asyncio.Event())]) as fake:
        failed = await rig.fail(fake, Patience(chunk_s=0.05))

    assert failed.kind is ErrorKind.TIMEOUT


async def test_the_key_is_in_no_failure(rig: Rig) -> None:
    """SEC-01: not even when the server repeats it."""
    async with ScriptedProvider([failure(400, "bad key sk-canary-5512")]) as fake:
        failed = await rig.fail(fake)

    assert "canary" not in str(failed) + failed.server_text + repr(failed)
    assert "sk-canary-5512" in str(fake.requests[0].headers)
