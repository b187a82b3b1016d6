"""Limits and what is used of them, in memory. Pure: `budget.py` brings the clock and the database.

A call holds the most it may cost before it is sent, in its turn, its day and its month at once, and gives that back
against what it really cost. What must stay true: what is used and held together never passes a limit by more than
calls cost above what they held; a call is settled where it was held, also when a day has ended since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from fermix.agent.budget.money import Price
from fermix.agent.model import Usage

LEAST_ANSWER_TOKENS = 1_024  # a call that may not answer at such length is not worth its prompt
BACKGROUND_SHARE = 0.9  # of a day and a month: what nobody waits for stops while a turn still goes (CST-01)
MOST_KEPT = 1_024  # of turns, days and months each; the oldest go, unless a call still runs in them

Unit = Literal["usd", "tokens"]


class Span(StrEnum):
    """What a limit is of."""

    TURN = "turn"
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Amount:
    """Millionths of a dollar, and tokens."""

    money: int = 0
    tokens: int = 0

    def of(self, unit: Unit) -> int:
        return self.money if unit == "usd" else self.tokens

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.money + other.money, self.tokens + other.tokens)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.money - other.money, self.tokens - other.tokens)


NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Limits:
    """By span; a missing one is no limit. `money` in millionths of a dollar."""

    money: Mapping[Span, int] = field(default_factory=dict[Span, int])
    tokens: Mapping[Span, int] = field(default_factory=dict[Span, int])

    def __bool__(self) -> bool:
        return bool(self.money or self.tokens)

    def __iter__(self) -> Iterator[tuple[Span, Unit, int]]:
        for span in Span:
            if span in self.money:
                yield span, "usd", self.money[span]
            if span in self.tokens:
                yield span, "tokens", self.tokens[span]


@dataclass(frozen=True, slots=True)
class Place:
    """One turn, day or month: Place(Span.DAY, "2026-12-01")."""

    span: Span
    name: str


@dataclass(slots=True)
class Use:
    """What was spent in a place, and what calls that run now hold."""

    spent: Amount = NOTHING
    held: Amount = NOTHING

    @property
    def whole(self) -> Amount:
        return self.spent + self.held


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit that leaves no room; `use` is as it stood."""

    span: Span
    unit: Unit
    limit: int
    spent: int
    held: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What a call wants: its prompt by estimate, and room for an answer. `price` None: unknown, money is not judged."""

    prompt_tokens: int
    answer_tokens: int
    price: Price | None
    background: bool = False

    def most(self, answer_tokens: int) -> Amount:
        """Return the most it may cost with an answer of so many tokens."""
        usage = Usage(self.prompt_tokens, answer_tokens)
        return Amount(self.price.cost(usage) if self.price else 0, self.prompt_tokens + answer_tokens)


class Tally:
    """What is used in each place."""

    def __init__(self) -> None:
        self._uses: dict[Span, OrderedDict[str, Use]] = {span: OrderedDict() for span in Span}

    def use(self, place: Place) -> Use:
        """Return what is used of a place, which begins empty."""
        uses = self._uses[place.span]
        if place.name not in uses:
            _make_room(uses)
            uses[place.name] = Use()
        return uses[place.name]

    def answer_room(self, wish: Wish, places: tuple[Place, ...], limits: Limits) -> int | Reached:
        """Return how long the answer may be, at most as long as wished; or the limit that leaves too little."""
        room, least = wish.answer_tokens, min(wish.answer_tokens, LEAST_ANSWER_TOKENS)
        for span, unit, limit in limits:
            place = next((one for one in places if one.span is span), None)
            if place is None or (unit == "usd" and wish.price is None):
                continue
            use = self.use(place)
            share = BACKGROUND_SHARE if wish.background and span is not Span.TURN else 1.0
            left = int(limit * share) - use.whole.of(unit)
            room = min(room, _answer_within(left, unit, wish))
            if room < least:
                return Reached(span, unit, limit, use.spent.of(unit), use.held.of(unit))
        return room

    def hold(self, places: tuple[Place, ...], most: Amount) -> None:
        for place in places:
            use = self.use(place)
            use.held += most

    def settle(self, places: tuple[Place, ...], most: Amount, real: Amount) -> None:
        """Give back what was held, and count what it was."""
        for place in places:
            use = self.use(place)
            use.held -= most
            use.spent += real

    def add(self, place: Place, real: Amount) -> None:
        """Count what an earlier process spent."""
        use = self.use(place)
        use.spent += real


def _make_room(uses: OrderedDict[str, Use]) -> None:
    if len(uses) >= MOST_KEPT:
        idle = next((name for name, use in uses.items() if use.held == NOTHING), None)
        if idle is not None:
            del uses[idle]


def _answer_within(left: int, unit: Unit, wish: Wish) -> int:
    """Return the longest answer that, with the prompt, costs no more than is left; negative when none does."""
    after_prompt = left - wish.most(0).of(unit)
    if unit == "tokens" or wish.price is None:
        return after_prompt
    if after_prompt < 0 or wish.price.output == 0:
        return -1 if after_prompt < 0 else wish.answer_tokens
    return max(int(after_prompt / wish.price.output) - 1, 0)  # the cost is rounded up
