"""The budget: every call of a model asks here first, and says afterwards what it cost.

The router asks for each attempt. What must stay true: nothing here waits; a call that limits would not bear is refused
before it is sent; each call is on disk while it runs, so that one whose process died counts as what it held; a
booking is settled once, whatever became of the call.
"""

from __future__ import annotations

import logging
import zoneinfo
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, timedelta
from functools import partial
from typing import Literal, Protocol

from fermix.agent.budget import ledger
from fermix.agent.budget.ledger import Row, Sum
from fermix.agent.budget.limits import Amount, Limits, Place, Reached, Span, Tally, Unit, Use, Wish
from fermix.agent.budget.money import Price
from fermix.agent.budget.settings import BudgetSettings
from fermix.agent.budget.words import BudgetReached, PriceUnknown, begins_anew
from fermix.agent.model import Purpose, Usage
from fermix.clock import Clock
from fermix.message import ConversationKey
from fermix.store import Database

log = logging.getLogger(__name__)

ANSWER_TOKENS = 16_384  # held for an answer of no stated length, and under a limit also its bound
MOST_SUMS = 10_000  # of one report

Outcome = Literal["answered", "failed", "cancelled"]
Unmetered = Literal["voice", "image"]


@dataclass(frozen=True, slots=True)
class TurnRef:
    """The turn that something was done for, and its conversation."""

    id: str = ""
    key: ConversationKey | None = None


NO_TURN = TurnRef()


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt to get an answer. `price` is that of the catalog, None when unknown; `most_output` is how long an
    answer of the model can be at all, `wanted_output` how long it was asked to be, None when nobody said.
    """

    provider: str
    model: str
    purpose: Purpose
    turn_id: str
    key: ConversationKey | None
    prompt_tokens: int
    most_output: int
    wanted_output: int | None
    price: Price | None

    @property
    def route(self) -> str:
        return f"{self.provider}/{self.model}"


class Booking(Protocol):
    """A call that may be made. `answer_tokens` is what its answer must be bounded to, None for no bound of ours."""

    @property
    def answer_tokens(self) -> int | None: ...

    def settle(self, outcome: Outcome, usage: Usage, *, estimated: bool) -> None:
        """Say what it cost; never waits and never raises."""
        ...


class Books(Protocol):
    """Where calls are booked."""

    def reserve(self, call: Call) -> Booking:
        """Hold the most that a call may cost. Raises: BudgetReached, PriceUnknown."""
        ...

    def note(self, provider: str, model: str, purpose: Unmetered, *, turn: TurnRef = NO_TURN) -> None:
        """Book what a service did that counts no tokens, once it is done; its price is not known."""
        ...


@dataclass(frozen=True, slots=True)
class LimitUse:
    """How one limit stands; `begins_anew` is the local date on which it does. That of a turn has neither."""

    name: str
    unit: Unit
    limit: int
    use: Use | None
    begins_anew: str


class Budget:
    """The books of the daemon. Made by `open`, one per database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._settings = BudgetSettings()
        self._limits = Limits()
        self._zone: zoneinfo.ZoneInfo | None = None
        self._tally = Tally()
        self._last_id = 0
        self._told: set[tuple[Place, str]] = set()

    @classmethod
    async def open(cls, database: Database, clock: Clock, settings: BudgetSettings, zone: str | None) -> Budget:
        """Take over what an earlier process left; calls it had not ended count as what they held."""
        budget = cls(database, clock)
        budget.use(settings, zone)
        since = (budget.today.replace(day=1) - timedelta(days=1)).replace(day=1).isoformat()
        found = await database.run(lambda connection: ledger.take_over(connection, since))
        if found.lost:
            log.warning("%d model calls were running when the last process died; booked as what they held", found.lost)
        budget._last_id = found.last_id
        for day, money, tokens in found.spent:
            for place in _places_of(day):
                budget._tally.add(place, Amount(money, tokens))
        return budget

    def use(self, settings: BudgetSettings, zone: str | None) -> None:
        """Take a new configuration; it counts from the next call on."""
        self._settings, self._limits = settings, settings.limits
        self._zone = None if zone is None else zoneinfo.ZoneInfo(zone)

    @property
    def today(self) -> date:
        """The date where the owner is."""
        return self._clock.now().astimezone(self._zone).date()

    @property
    def zone(self) -> str:
        return self._zone.key if self._zone is not None else "this machine's time"

    def reserve(self, call: Call) -> _Booked:
        """Hold the most that a call may cost. Raises: BudgetReached, PriceUnknown."""
        price = self._settings.price(call.route) or call.price
        wanted = min(call.wanted_output or ANSWER_TOKENS, call.most_output)
        wish = Wish(call.prompt_tokens, wanted, price, background=call.purpose != "turn")
        day = self.today
        if price is not None and price.is_free:
            return self._begin(call, wish, day, (), bound=None)
        if self._limits.money and price is None:
            raise PriceUnknown(call.route)
        places = (*([Place(Span.TURN, call.turn_id)] if call.turn_id else []), *_places_of(day.isoformat()))
        room = self._tally.answer_room(wish, places, self._limits)
        if isinstance(room, Reached):
            raise self._refusal(call, room, day)
        bound = room if self._limits else None
        return self._begin(call, replace(wish, answer_tokens=room), day, places, bound=bound)

    def limits(self) -> list[LimitUse]:
        """Return how each limit of a day and a month stands, and what those of a turn allow."""
        day = self.today
        names = {Span.DAY: day.isoformat(), Span.MONTH: day.isoformat()[:7]}
        return [
            LimitUse(
                f"{span}_{unit}",
                unit,
                limit,
                self._tally.use(Place(span, names[span])) if span in names else None,
                begins_anew(span, day),
            )
            for span, unit, limit in self._limits
        ]

    def spent(self) -> tuple[Use, Use]:
        """Return what was used today and this month, by models that are not free."""
        day, month = _places_of(self.today.isoformat())
        return self._tally.use(day), self._tally.use(month)

    async def sums(self, since: date) -> list[Sum]:
        """Return what was booked since a day. Raises: NeedsOperator, Unavailable."""
        return await ledger.sums(self._database, since.isoformat(), MOST_SUMS)

    def _begin(self, call: Call, wish: Wish, day: date, places: tuple[Place, ...], *, bound: int | None) -> _Booked:
        most = wish.most(wish.answer_tokens)
        self._tally.hold(places, most)
        held = (wish.prompt_tokens, wish.answer_tokens, None if wish.price is None else most.money)
        row = self._row(call.provider, call.model, call.purpose, TurnRef(call.turn_id, call.key), day, held)
        self._write(row)
        return _Booked(row, wish.price, partial(self._tally.settle, places, most), self._write, bound)

    def note(self, provider: str, model: str, purpose: Unmetered, *, turn: TurnRef = NO_TURN) -> None:
        """Book what a service did that counts no tokens, once it is done; its price is not known."""
        row = self._row(provider, model, purpose, turn, self.today, (0, 0, None))
        self._write(replace(row, outcome="answered"))

    def _row(
        self, provider: str, model: str, purpose: Purpose | Unmetered, turn: TurnRef, day: date,
        held: tuple[int, int, int | None],
    ) -> Row:  # fmt: skip
        """Begin a row; `held` are tokens of the prompt and of the answer, and their money."""
        self._last_id += 1
        at = self._clock.now().astimezone(UTC).isoformat(timespec="milliseconds")
        who = (purpose, provider, model, turn.key, turn.id)
        return Row(self._last_id, at, day.isoformat(), *who, "open", 0, None, 0, None, False, *held)

    def _write(self, row: Row) -> None:
        self._database.post(lambda connection: ledger.write(connection, row))

    def _refusal(self, call: Call, reached: Reached, day: date) -> BudgetReached:
        background = call.purpose != "turn"
        refusal = BudgetReached(call.route, reached, day, self.zone, background=background)
        where = Place(reached.span, call.turn_id if reached.span is Span.TURN else day.isoformat())
        if (where, call.purpose) not in self._told:
            self._told = {(where, call.purpose)} | {one for one in self._told if one[0].name == day.isoformat()}
            log.warning("refused a call for %s: %s", call.purpose, refusal)
        return refusal


class _Booked:
    """A `Booking` of the budget."""

    def __init__(
        self,
        row: Row,
        price: Price | None,
        settle: Callable[[Amount], None],
        write: Callable[[Row], None],
        answer_tokens: int | None,
    ) -> None:
        self._row = row
        self._price = price
        self._settle = settle
        self._write = write
        self.answer_tokens = answer_tokens

    def settle(self, outcome: Outcome, usage: Usage, *, estimated: bool) -> None:
        money = None if self._price is None else self._price.cost(usage)
        self._settle(Amount(money or 0, usage.input_tokens + usage.output_tokens))
        self._write(
            replace(
                self._row,
                outcome=outcome,
                input_tokens=usage.input_tokens,
                cached_tokens=usage.cached_tokens,
                output_tokens=usage.output_tokens,
                money=money,
                estimated=estimated,
            )
        )


def _places_of(day: str) -> tuple[Place, Place]:
    return Place(Span.DAY, day), Place(Span.MONTH, day[:7])
