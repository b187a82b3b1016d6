"""Every attempt is booked once: what the provider counted, else by estimate, else nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fermix.agent.budget import BudgetReached, BudgetSettings, PriceUnknown
from fermix.agent.model import ChatRequest, Completion, TextDelta, Usage, UserMessage
from fermix.agent.providers.provider import ErrorKind, ModelFacts, NothingListens, OnDelta, ProviderFailed, Route
from fermix.agent.providers.routing import Router
from fermix.errors import NeedsOperator
from fermix.events import Events
from fermix.message import ConversationKey
from fermix.net import Net
from tests.agent.budget.world import SetClock, opened, rows
from tests.fakes.books import FakeBooks
from tests.fakes.clock import ManualClock
from tests.fakes.provider import Answer, ScriptedProvider, failure
from tests.fakes.routes import router_to

KEY = ConversationKey("telegram", "42", "root")
ASK = ChatRequest(("be brief",), (UserMessage("x" * 4_000),))
PROMPT = 1_018  # the words at four bytes a token, with the framing of two parts

Step = Callable[[OnDelta], Awaitable[Completion]]


class Played:
    """A route that does what it is told, one step a call."""

    def __init__(self, name: str, *steps: Step | Exception | Usage) -> None:
        self.route = Route(name, "m")
        self.facts = ModelFacts(100_000, 4_000, None, 1.0, 2.0, cached_price=0.5)
        self.requests: list[ChatRequest] = []
        self._steps = list(steps)

    async def complete(self, request: ChatRequest, on_delta: OnDelta) -> Completion:
        self.requests.append(request)
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        if isinstance(step, Usage):
            return Completion("a" * 400, (), step, "stop", self.route.provider, "m")
        return await step(on_delta)


def failed(kind: ErrorKind, name: str = "a", *, streamed: bool = False, usage: Usage | None = None) -> ProviderFailed:
    error = ProviderFailed(kind, provider=name, model="m", streamed=streamed)
    error.usage = usage
    return error


async def ask(books: FakeBooks, *routes: Played) -> Completion:
    clock = ManualClock(moves_itself=True)
    router = Router(routes, [], clock, Events(clock), books)
    async with asyncio.timeout(5):
        return await router.complete(ASK, lambda _: None, turn_id="t1", key=KEY)


async def test_what_the_provider_counted_is_booked() -> None:
    books = FakeBooks()
    await ask(books, Played("a", Usage(900, 100, 20)))

    (booked,) = books.booked
    assert booked.settled == [("answered", Usage(900, 100, 20), False)]
    assert (booked.call.turn_id, booked.call.key, booked.call.purpose) == ("t1", KEY, "turn")
    assert booked.call.prompt_tokens == PROMPT
    assert booked.call.price is not None
    assert booked.call.price.cost(Usage(10, 10, 4)) == 6 + 2 + 20


async def test_an_answer_that_nobody_counted_is_booked_by_estimate() -> None:
    books = FakeBooks()
    await ask(books, Played("a", Usage()))

    assert books.settled == [("a", "answered", Usage(PROMPT, 108), True)]


async def test_retries_and_fallbacks_are_booked_each() -> None:
    books = FakeBooks()
    first = Played("a", failed(ErrorKind.TRANSPORT), failed(ErrorKind.RATE_LIMIT))
    await ask(books, first, Played("b", Usage(1, 1)))

    assert books.settled == [
        ("a", "failed", Usage(PROMPT, 0), True),
        ("a", "failed", Usage(), False),
        ("b", "answered", Usage(1, 1), False),
    ]


@pytest.mark.parametrize(
    ("error", "usage", "estimated"),
    [
        (failed(ErrorKind.AUTH), Usage(), False),
        (failed(ErrorKind.REFUSED_REQUEST), Usage(), False),
        (NothingListens("127.0.0.1:1", Route("a", "m")), Usage(), False),
        (failed(ErrorKind.TRANSPORT, usage=Usage()), Usage(), False),
        (failed(ErrorKind.EMPTY, usage=Usage(900, 4_000)), Usage(900, 4_000), False),
        (failed(ErrorKind.EMPTY, usage=Usage()), Usage(PROMPT, 0), True),
        (failed(ErrorKind.MALFORMED), Usage(PROMPT, 0), True),
        (NeedsOperator("no key", advice="get one"), Usage(), False),
    ],
)
async def test_a_failed_call_is_booked_with_what_is_known(error: Exception, usage: Usage, estimated: bool) -> None:
    books = FakeBooks()
    with pytest.raises(type(error)):
        await ask(books, Played("a", *[error] * 4))

    assert books.settled[0] == ("a", "failed", usage, estimated)


async def test_what_was_streamed_before_the_break_is_booked() -> None:
    async def breaks(on_delta: OnDelta) -> Completion:
        on_delta(TextDelta("é" * 20))
        raise failed(ErrorKind.UNAVAILABLE, streamed=True)

    books = FakeBooks()
    with pytest.raises(ProviderFailed):
        await ask(books, Played("a", breaks))

    assert books.settled == [("a", "failed", Usage(PROMPT, 10), True)]


async def test_a_stopped_call_is_booked_and_passes_the_stop_on() -> None:
    asked = asyncio.Event()

    async def hangs(on_delta: OnDelta) -> Completion:
        on_delta(TextDelta("a" * 8))
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    books = FakeBooks()
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(ask(books, Played("a", hangs)))
        await asked.wait()
        task.cancel()

    assert task.cancelled()
    assert books.settled == [("a", "cancelled", Usage(PROMPT, 2), True)]


async def test_a_refusal_of_the_budget_asks_nobody_else() -> None:
    """The issue: refusals never fall back to another provider by accident."""
    first, second = Played("a", Usage(1, 1)), Played("b", Usage(1, 1))
    with pytest.raises(PriceUnknown):
        await ask(FakeBooks(refusal=PriceUnknown("a/m")), first, second)

    assert (first.requests, second.requests) == ([], [])


async def test_the_answer_is_bounded_to_what_was_held() -> None:
    route = Played("a", Usage(1, 1))
    await ask(FakeBooks(answer_tokens=1_500), route)

    assert route.requests[0].max_output_tokens == 1_500


async def test_over_http_a_refused_address_costs_nothing_and_an_answer_what_the_server_said() -> None:
    books, clock = FakeBooks(), ManualClock(moves_itself=True)
    async with (
        asyncio.timeout(5),
        Net.open(loopback_only=True) as net,
        ScriptedProvider([failure(503, "busy"), Answer(text="Hello")]) as fake,
    ):
        router = router_to(fake, net, Events(clock), books=books)
        completion = await router.complete(ASK, lambda _: None, turn_id="t1")

    assert [end[1:] for end in books.settled] == [
        ("failed", Usage(), False),
        ("answered", completion.usage, False),
    ]


async def test_two_turns_at_once_cannot_overrun_a_limit(tmp_path: Path) -> None:
    """The issue: limits are reserved before the call. There is room for one of them, whichever comes first."""
    both, clock = asyncio.Event(), SetClock("2026-12-01T12:00:00+00:00")

    async def waits(on_delta: OnDelta) -> Completion:
        await both.wait()
        return Completion("late", (), Usage(PROMPT, 1_500), "stop", "a", "m")

    async with asyncio.timeout(5), opened(tmp_path, clock, BudgetSettings(day_usd=0.005)) as (budget, database):
        router = Router([Played("a", waits, waits)], [], clock, Events(clock), budget)

        async def turn(name: str) -> str:
            try:
                return (await router.complete(ASK, lambda _: None, turn_id=name)).text
            except BudgetReached:
                both.set()
                return "refused"

        async with asyncio.TaskGroup() as group:
            turns = [group.create_task(turn(name)) for name in ("t1", "t2")]

        assert [task.result() for task in turns] == ["late", "refused"]
        assert await rows(database, "turn_id, outcome, money") == [("t1", "answered", PROMPT + 3_000)]
        assert budget.spent()[0].whole.money <= 5_000
