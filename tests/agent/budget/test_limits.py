"""Limits hold for any order of holding and settling, and costs are never rounded to nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fermix.agent.budget.limits import Amount, Limits, Place, Reached, Span, Tally, Wish
from fermix.agent.budget.money import MILLION, Price
from fermix.agent.model import Usage
from fermix.protocol.usage_lines import dollars

PLACES = (Place(Span.DAY, "2026-12-01"), Place(Span.MONTH, "2026-12"))
TURNS = ("a", "b", "c")
prices = st.builds(Price, *[st.floats(0.001, 100)] * 2, st.none() | st.floats(0, 10))


class Interleavings(RuleBasedStateMachine):
    """Turns that hold, settle and break off in any order, against limits that may change on the way."""

    @initialize(money=st.integers(0, 500_000), tokens=st.integers(0, 200_000))
    def begin(self, money: int, tokens: int) -> None:
        self.tally = Tally()
        self.limits = Limits(
            {Span.TURN: money // 2, Span.DAY: money, Span.MONTH: money * 2}, {Span.DAY: tokens, Span.TURN: tokens // 2}
        )
        self.running: list[tuple[tuple[Place, ...], Amount, Price, int]] = []
        self.above: dict[Place, Amount] = {}

    @rule(turn=st.sampled_from(TURNS), prompt=st.integers(0, 30_000), answer=st.integers(1, 20_000), price=prices)
    def hold(self, turn: str, prompt: int, answer: int, price: Price) -> None:
        places = (Place(Span.TURN, turn), *PLACES)
        wish = Wish(prompt, answer, price)
        room = self.tally.answer_room(wish, places, self.limits)
        if isinstance(room, Reached):
            return
        assert room <= answer
        self.tally.hold(places, wish.most(room))
        self.running.append((places, wish.most(room), price, prompt))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), prompt=st.integers(0, 40_000), answer=st.integers(0, 40_000))
    def settle(self, data: st.DataObject, prompt: int, answer: int) -> None:
        """Cancelled ones are those that used little."""
        places, most, price, _ = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        real = Amount(price.cost(Usage(prompt, answer)), prompt + answer)
        self.tally.settle(places, most, real)
        for place in places:
            over = Amount(max(real.money - most.money, 0), max(real.tokens - most.tokens, 0))
            self.above[place] = self.above.get(place, Amount()) + over

    @invariant()
    def no_limit_is_passed_by_more_than_calls_cost_above_what_they_held(self) -> None:
        for span, unit, limit in getattr(self, "limits", ()):
            for place in (*(Place(Span.TURN, turn) for turn in TURNS), *PLACES):
                if place.span is span:
                    above = self.above.get(place, Amount()).of(unit)
                    assert self.tally.use(place).whole.of(unit) <= limit + above

    def teardown(self) -> None:
        for places, most, _, _ in getattr(self, "running", []):
            self.tally.settle(places, most, Amount())
        for place in PLACES if hasattr(self, "tally") else ():
            assert self.tally.use(place).held == Amount()


TestInterleavings = Interleavings.TestCase


@given(price=prices, tokens=st.integers(1, 10**7), kept=st.integers(0, 10**7))
def test_nothing_that_has_a_price_is_free(price: Price, tokens: int, kept: int) -> None:
    assert price.cost(Usage(0, tokens)) >= 1
    assert 0 <= price.cost(Usage(tokens, 0, kept)) <= max(price.input, price.cached or 0) * tokens + 1


def test_costs_are_exact_in_millionths() -> None:
    assert Price(0.1, 30.0).cost(Usage(30, 1)) == 33
    assert Price(3.0, 15.0, 0.3).cost(Usage(1_000_000, 1_000_000, 500_000)) == 1_650_000 + 15_000_000


@pytest.mark.parametrize(
    ("money", "text"),
    [
        (0, "$0.00"),
        (4_800_000, "$4.80"),
        (1_234_560_000, "$1,234.56"),
        (1_000, "$0.001"),
        (1_500, "$0.0015"),
        (7, "$0.000007"),
    ],
)
def test_dollars_for_people(money: int, text: str) -> None:
    assert dollars(money / MILLION) == text


def test_old_turns_are_forgotten_but_none_that_runs() -> None:
    tally = Tally()
    first = Place(Span.TURN, "first")
    tally.hold((first,), Amount(5, 5))
    for number in range(3_000):
        tally.add(Place(Span.TURN, str(number)), Amount(1, 1))

    assert tally.use(first).held == Amount(5, 5)
    assert tally.use(Place(Span.TURN, "0")).spent == Amount()
    assert tally.use(Place(Span.TURN, "2999")).spent == Amount(1, 1)
