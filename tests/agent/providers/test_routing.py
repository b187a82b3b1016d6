"""The chain: who is asked, how often, and who stands in."""

from __future__ import annotations

import asyncio

import pytest

from fermix.agent.model import (
    AssistantMessage,
    ChatRequest,
    Completion,
    TextDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from fermix.agent.providers.provider import (
    AllRoutesFailed,
    ErrorKind,
    ModelFacts,
    OnDelta,
    ProviderFailed,
    Route,
)
from fermix.agent.providers.routing import Router
from fermix.errors import NeedsOperator
from fermix.events import EventQueue, Events, ProviderChanged
from tests.fakes.books import FakeBooks
from tests.fakes.clock import ManualClock

FIRST = ChatRequest((), (UserMessage("hello"),))
SECOND = ChatRequest(
    (),
    (
        UserMessage("hello"),
        AssistantMessage("", (ToolCall("abcdefgh1", "shell", {}),)),
        ToolMessage("abcdefgh1", "shell", "ok", True),
    ),
)

Step = ErrorKind | ProviderFailed | str


class FakeRoute:
    """A provider that plays a list: a kind fails with it, a text answers with it; the last one repeats."""

    def __init__(self, name: str, *steps: Step) -> None:
        self.route = Route(name, "m")
        self.facts = ModelFacts(1_000, 100, None)
        self._steps = list(steps)
        self.calls = 0

    async def complete(self, request: ChatRequest, on_delta: OnDelta) -> Completion:
        self.calls += 1
        await asyncio.sleep(0)
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        if isinstance(step, ProviderFailed):
            if step.streamed:
                on_delta(TextDelta("half"))
            raise step
        if isinstance(step, ErrorKind):
            raise self.failure(step)
        return Completion(step, (), Usage(), "stop", self.route.provider, self.route.model)

    def failure(self, kind: ErrorKind, **more: object) -> ProviderFailed:
        return ProviderFailed(kind, provider=self.route.provider, model=self.route.model, **more)  # pyright: ignore


class Rig:
    def __init__(self, *routes: FakeRoute) -> None:
        self.clock = ManualClock(moves_itself=True)
        self.events = Events(self.clock)
        self.books = FakeBooks()
        self.router = Router(routes, [], self.clock, self.events, self.books)

    async def ask(self, request: ChatRequest = FIRST, turn_id: str = "t1") -> str:
        async with asyncio.timeout(5):
            return (await self.router.complete(request, lambda delta: None, turn_id=turn_id)).provider

    def changes(self, queue: EventQueue) -> list[tuple[str, str, str]]:
        events = [recorded.event for recorded in queue.drain()]
        return [(event.source, event.target, event.reason) for event in events if isinstance(event, ProviderChanged)]


def limited(route: str, retry_after_s: float | None) -> ProviderFailed:
    return ProviderFailed(ErrorKind.RATE_LIMIT, provider=route, model="m", status=429, retry_after_s=retry_after_s)


async def test_one_hiccup_does_not_change_the_model() -> None:
    """PRV-21: one 503, then fine."""
    first, second = FakeRoute("a", ErrorKind.UNAVAILABLE, "hi"), FakeRoute("b", "hi")
    rig = Rig(first, second)

    assert await rig.ask() == "a"
    assert rig.clock.sleeps == [0.25]
    assert second.calls == 0


async def test_a_lasting_failure_moves_on_and_says_so() -> None:
    first, second = FakeRoute("a", ErrorKind.UNAVAILABLE), FakeRoute("b", "hi")
    rig = Rig(first, second)
    with rig.events.subscribe(10) as queue:
        assert await rig.ask() == "b"

        assert rig.changes(queue) == [("a/m", "b/m", "unavailable")]
    assert rig.clock.sleeps == [0.25, 0.5, 1.0]
    assert first.calls == 4


async def test_a_rate_limit_moves_on_at_once_through_every_route() -> None:
    """PRV-17: no lane sleeps for half an hour while another route is free; each is tried once."""
    routes = [FakeRoute(name, limited(name, 1800.0)) for name in "abc"]
    rig = Rig(*routes, FakeRoute("d", "hi"))

    assert await rig.ask() == "d"
    assert rig.clock.sleeps == []
    assert [route.calls for route in routes] == [1, 1, 1]


async def test_a_short_wish_of_the_last_route_is_granted() -> None:
    """PRV-22: the given time plus a margin."""
    rig = Rig(FakeRoute("a", limited("a", 2.0), "hi"))

    assert await rig.ask() == "a"
    assert rig.clock.sleeps == [2.25]


async def test_a_long_wish_of_the_last_route_is_told() -> None:
    route = FakeRoute("a", limited("a", 600.0))
    rig = Rig(route)

    with pytest.raises(ProviderFailed) as caught:
        await rig.ask()

    assert (caught.value.retry_after_s, route.calls, rig.clock.sleeps) == (600.0, 1, [])


@pytest.mark.parametrize(
    "kind",
    [ErrorKind.AUTH, ErrorKind.CONTEXT_LENGTH, ErrorKind.REFUSED_REQUEST, ErrorKind.MODEL_NOT_FOUND, ErrorKind.EMPTY],
)
async def test_what_another_route_would_not_mend_ends_the_call(kind: ErrorKind) -> None:
    first, second = FakeRoute("a", kind), FakeRoute("b", "hi")
    rig = Rig(first, second)

    with pytest.raises(ProviderFailed) as caught:
        await rig.ask()

    assert (caught.value.kind, first.calls, second.calls) == (kind, 1, 0)


@pytest.mark.parametrize("kind", [ErrorKind.TIMEOUT, ErrorKind.QUOTA, ErrorKind.IMAGE_UNSUPPORTED])
async def test_what_will_not_pass_soon_moves_on_without_a_retry(kind: ErrorKind) -> None:
    first = FakeRoute("a", kind)
    rig = Rig(first, FakeRoute("b", "hi"))

    assert await rig.ask() == "b"
    assert (first.calls, rig.clock.sleeps) == (1, [])


async def test_nothing_is_tried_again_after_visible_output() -> None:
    broken = ProviderFailed(ErrorKind.TRANSPORT, provider="a", model="m", streamed=True)
    first, second = FakeRoute("a", broken), FakeRoute("b", "hi")
    rig = Rig(first, second)

    with pytest.raises(ProviderFailed):
        await rig.ask()

    assert (first.calls, second.calls) == (1, 0)


async def test_all_routes_failing_names_each() -> None:
    rig = Rig(FakeRoute("a", ErrorKind.QUOTA), FakeRoute("b", ErrorKind.TIMEOUT))

    with pytest.raises(AllRoutesFailed) as caught:
        await rig.ask()

    assert [failure.provider for failure in caught.value.failures] == ["a", "b"]


async def test_a_summary_on_the_way_does_not_move_the_turn() -> None:
    first, second = FakeRoute("a", "hi", ErrorKind.UNAVAILABLE, ErrorKind.QUOTA, "hi"), FakeRoute("b", "hi")
    rig = Rig(first, second)
    await rig.ask()

    summary = await rig.router.complete(FIRST, lambda delta: None, turn_id="t1", purpose="compaction")

    assert summary.provider == "b"
    assert await rig.ask(SECOND) == "a"


async def test_a_summary_skips_what_cannot_hold_it_but_never_the_first_route() -> None:
    """Reference 3, section 9.7: a fallback whose window cannot hold the prompt is skipped, not tried and refused."""
    long = ChatRequest((), (UserMessage("x" * 3_400),))  # 850 tokens, and each window holds 1,000 with the answer
    first, small, large = FakeRoute("a", ErrorKind.QUOTA, "hi"), FakeRoute("b", "hi"), FakeRoute("c", "hi")
    large.facts = ModelFacts(9_000, 100, None)
    first.facts = small.facts = ModelFacts(900, 100, None)
    rig = Rig(first, small, large)

    summary = await rig.router.complete(long, lambda delta: None, turn_id="t1", purpose="compaction")

    assert (summary.provider, first.calls, small.calls) == ("c", 1, 0)
    assert (await rig.router.complete(FIRST, lambda delta: None, turn_id="t2", purpose="compaction")).provider == "b"


async def test_a_continuation_stays_where_the_turn_began() -> None:
    first, second = FakeRoute("a", ErrorKind.QUOTA), FakeRoute("b", "hi")
    rig = Rig(first, second)
    await rig.ask()
    rig.clock.advance(3_600)

    assert await rig.ask(SECOND) == "b"
    assert first.calls == 1


@pytest.mark.parametrize("kind", [ErrorKind.UNAVAILABLE, ErrorKind.TRANSPORT, ErrorKind.TIMEOUT, ErrorKind.RATE_LIMIT])
async def test_a_continuation_is_asked_twice_more_and_nowhere_else(kind: ErrorKind) -> None:
    first, second = FakeRoute("a", "hi", kind), FakeRoute("b", "hi")
    rig = Rig(first, second)
    await rig.ask()

    with pytest.raises(ProviderFailed):
        await rig.ask(SECOND)

    assert rig.clock.sleeps == [2.0, 4.0]
    assert (first.calls, second.calls) == (4, 0)


@pytest.mark.parametrize(
    ("kind", "following"), [(ErrorKind.UNAVAILABLE, Route("a", "small")), (ErrorKind.QUOTA, Route("b", "m"))]
)
async def test_an_overload_cools_one_model_and_an_empty_purse_all_of_its_key(kind: ErrorKind, following: Route) -> None:
    """PRV-18: model Y of a provider is tried when model X is overloaded, but not when the money is gone."""
    small = FakeRoute("a", "hi")
    small.route = Route("a", "small")
    rig = Rig(FakeRoute("a", "hi", kind), small, FakeRoute("b", "hi"))
    await rig.ask()
    with pytest.raises(ProviderFailed):
        await rig.ask(SECOND)

    assert rig.router.current == following


async def test_a_route_that_recovered_is_asked_again_soon() -> None:
    """PRV-19: a cool-down is short, and a route in it is still asked when nothing else answers."""
    first, second = FakeRoute("a", ErrorKind.QUOTA, "hi"), FakeRoute("b", "hi", ErrorKind.QUOTA)
    rig = Rig(first, second)
    with rig.events.subscribe(10) as queue:
        assert await rig.ask(turn_id="t1") == "b"
        assert await rig.ask(turn_id="t2") == "a"

        assert ("a/m", "b/m", "cooling down") in rig.changes(queue)
    assert rig.router.current == Route("a", "m")


async def test_the_servers_own_reset_time_is_honoured_in_full() -> None:
    """PRV-19."""
    rig = Rig(FakeRoute("a", limited("a", 300.0)), FakeRoute("b", "hi"))
    await rig.ask()
    rig.clock.advance(299)
    before = rig.router.current
    rig.clock.advance(2)

    assert (before, rig.router.current) == (Route("b", "m"), Route("a", "m"))


async def test_without_any_route_the_operator_is_told() -> None:
    rig = Rig()

    with pytest.raises(NeedsOperator, match="fermix setup"):
        await rig.ask()

    assert rig.router.current is None


async def test_cancellation_passes_through_a_pause() -> None:
    clock = ManualClock()
    router = Router([FakeRoute("a", ErrorKind.TRANSPORT)], [], clock, Events(clock), FakeBooks())
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(router.complete(FIRST, lambda delta: None, turn_id="t"))
        while not clock.sleeps:
            await asyncio.sleep(0)
        asking.cancel()

    assert asking.cancelled()
