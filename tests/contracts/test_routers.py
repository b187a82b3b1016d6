"""What the loop relies on in a router, shown for the real one over HTTP and for the one the tests script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from fermix.agent.loop import ModelRouter
from fermix.agent.model import ChatRequest, Completion, Delta, TextDelta, ToolCall, UserMessage
from fermix.agent.providers.provider import ErrorKind, OnDelta, ProviderFailed
from fermix.events import Events
from fermix.net import Net
from tests.fakes.clock import ManualClock
from tests.fakes.provider import Answer, Call, ScriptedProvider, failure
from tests.fakes.router import FACTS, ROUTE, Line, ScriptedRouter, calls, says
from tests.fakes.routes import router_to

ASK = ChatRequest(system=("be brief",), messages=(UserMessage("hello"),))


async def hang(request: ChatRequest, on_delta: OnDelta) -> Completion:
    on_delta(TextDelta("first half"))
    await asyncio.Event().wait()
    return says("never")


REFUSED = ProviderFailed(ErrorKind.AUTH, provider=ROUTE.provider, model=ROUTE.model, status=401)
SCRIPTS: dict[str, tuple[Line, Callable[[], Answer]]] = {
    "text": (says("Hello, world."), lambda: Answer(text="Hello, world.")),
    "call": (
        calls(ToolCall("call00001", "look", {"page": 2})),
        lambda: Answer(calls=(Call("look", {"page": 2}),)),
    ),
    "refused": (REFUSED, lambda: failure(401, "no")),
    "hangs": (hang, lambda: Answer(text="first half, second half of a long answer", hold=asyncio.Event())),
}


@asynccontextmanager
async def open_router(kind: str, script: str) -> AsyncGenerator[ModelRouter]:
    line, answer = SCRIPTS[script]
    if kind == "scripted":
        yield ScriptedRouter([line])
        return
    async with Net.open(loopback_only=True) as net, ScriptedProvider([answer()]) as fake:
        yield router_to(fake, net, Events(ManualClock()))


@pytest.fixture(params=["scripted", "real"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_first_route_is_known_before_the_first_call(kind: str) -> None:
    """The runtime context is shaped for the first route."""
    async with open_router(kind, "text") as router:
        assert [provider.route for provider in router.routes] == [ROUTE]
        assert router.routes[0].facts == FACTS
        assert router.current == ROUTE


async def test_text_streams_and_the_answer_names_who_spoke(kind: str) -> None:
    deltas: list[Delta] = []
    async with asyncio.timeout(5), open_router(kind, "text") as router:
        answer = await router.complete(ASK, deltas.append, turn_id="t1")

    assert (answer.text, answer.tool_calls, answer.finish) == ("Hello, world.", (), "stop")
    assert (answer.provider, answer.model) == (ROUTE.provider, ROUTE.model)
    assert answer.usage.input_tokens > 0
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == "Hello, world."


async def test_calls_come_with_ids_of_ours(kind: str) -> None:
    async with asyncio.timeout(5), open_router(kind, "call") as router:
        answer = await router.complete(ASK, lambda delta: None, turn_id="t1")

    (call,) = answer.tool_calls
    assert (call.name, call.arguments, call.problem) == ("look", {"page": 2}, None)
    assert len(call.id) == 9
    assert call.id.isalnum()


async def test_failure_is_sorted_and_names_the_route(kind: str) -> None:
    async with asyncio.timeout(5), open_router(kind, "refused") as router:
        with pytest.raises(ProviderFailed) as caught:
            await router.complete(ASK, lambda delta: None, turn_id="t1")

    assert (caught.value.kind, caught.value.provider) == (ErrorKind.AUTH, ROUTE.provider)
    assert not caught.value.streamed


async def test_cancellation_passes_through_while_the_model_streams(kind: str) -> None:
    """QUE-01 (a)."""
    begun = asyncio.Event()
    async with asyncio.timeout(5), open_router(kind, "hangs") as router, asyncio.TaskGroup() as group:
        task = group.create_task(router.complete(ASK, lambda delta: begun.set(), turn_id="t1"))
        await begun.wait()
        task.cancel()

    assert task.cancelled()
