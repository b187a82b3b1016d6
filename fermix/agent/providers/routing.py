"""Choose who answers: the chain of routes, retries on one route, and when the next one stands in.

The loop calls `complete` for each step. What must stay true: nothing is tried again once anything was shown; only a
turn's first call may change the route, and the turn then stays there; each route is tried once a call; every wait
is bounded; every attempt is booked, and what the budget refuses is asked of no other route either.
Source: reference 4, section 2.6; PRV-17 to PRV-22 in faults.md.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from fermix.agent.budget import Books
from fermix.agent.model import ChatRequest, Completion, Purpose, ToolMessage
from fermix.agent.providers.attempts import Attempts, Occasion
from fermix.agent.providers.chain import Candidate, open_route, usable_candidates
from fermix.agent.providers.provider import AllRoutesFailed, ErrorKind, OnDelta, Provider, ProviderFailed, Route
from fermix.agent.tokens import message_tokens, prompt_tokens
from fermix.clock import Clock
from fermix.errors import NeedsOperator
from fermix.events import Events, ProviderChanged
from fermix.message import ConversationKey
from fermix.net import Net
from fermix.protocol.methods import ProviderRow

log = logging.getLogger(__name__)

REMEMBERED_TURNS = 1_024
WISH_MARGIN_S = 0.25  # clocks differ; coming a moment early costs another refusal
PERSON_WAITS_S = 10.0  # what a person sits through; longer wishes are told instead

HICCUPS = frozenset({ErrorKind.UNAVAILABLE, ErrorKind.TRANSPORT})  # often gone a moment later
FAILOVER = HICCUPS | {ErrorKind.TIMEOUT, ErrorKind.RATE_LIMIT, ErrorKind.QUOTA, ErrorKind.IMAGE_UNSUPPORTED}
COOL_S = {
    ErrorKind.RATE_LIMIT: 30.0,
    ErrorKind.UNAVAILABLE: 30.0,
    ErrorKind.TRANSPORT: 30.0,
    ErrorKind.TIMEOUT: 30.0,
    ErrorKind.QUOTA: 600.0,
}


@dataclass(frozen=True, slots=True)
class Retries:
    """When the same route is asked again: after which kinds, after which pauses in seconds, and how long a wait that
    the server wishes for is granted.
    """

    kinds: frozenset[ErrorKind]
    pauses_s: tuple[float, ...]
    longest_wish_s: float

    def pause_s(self, error: ProviderFailed, tries: int) -> float | None:
        """Return how long to wait before the next try; None when there is none."""
        if error.streamed or error.kind not in self.kinds or tries > len(self.pauses_s):
            return None
        if error.retry_after_s is None:
            return self.pauses_s[tries - 1]
        return error.retry_after_s + WISH_MARGIN_S if error.retry_after_s <= self.longest_wish_s else None


OTHERS_LEFT = Retries(HICCUPS, (0.25, 0.5, 1.0), longest_wish_s=0.0)
LAST_ROUTE = Retries(HICCUPS | {ErrorKind.RATE_LIMIT}, (0.25, 0.5, 1.0), longest_wish_s=PERSON_WAITS_S)
CONTINUATION = Retries(HICCUPS | {ErrorKind.RATE_LIMIT, ErrorKind.TIMEOUT}, (2.0, 4.0), longest_wish_s=PERSON_WAITS_S)


class Router:
    """The chain. Made anew whenever the configuration changes; remembers which route a running turn is on."""

    def __init__(
        self, routes: Sequence[Provider], rows: Sequence[ProviderRow], clock: Clock, events: Events, books: Books
    ) -> None:
        self._routes = tuple(routes)
        self._rows = tuple(rows)
        self._clock = clock
        self._events = events
        self._attempts = Attempts(books)
        self._cooling = _Cooling(clock)
        self._turns: OrderedDict[str, Provider] = OrderedDict()

    @classmethod
    def build(
        cls,
        candidates: Sequence[Candidate],
        embedded: Provider | None,
        net: Net,
        clock: Clock,
        events: Events,
        books: Books,
        *,
        embedded_first: bool = False,
    ) -> Self:
        """Make the chain of what is configured. The embedded model answers while nothing is, or first of all."""
        routes: list[Provider]
        if embedded is not None and (embedded_first or not candidates):
            others = [candidate for candidate in candidates if not candidate.problem]
            routes = [embedded, *(open_route(candidate, net) for candidate in others)]
        else:
            routes = [open_route(candidate, net) for candidate in usable_candidates(candidates)]
        return cls(routes, [candidate.row for candidate in candidates], clock, events, books)

    @property
    def routes(self) -> tuple[Provider, ...]:
        return self._routes

    @property
    def current(self) -> Route | None:
        """Where the next turn's first call goes; None when nowhere."""
        order = self._order()
        return order[0].route if order else None

    def rows(self) -> list[ProviderRow]:
        """Every provider that is mentioned, usable or not, for `fermix status`."""
        return [*self._rows]

    async def complete(
        self,
        request: ChatRequest,
        on_delta: OnDelta,
        *,
        turn_id: str,
        purpose: Purpose = "turn",
        key: ConversationKey | None = None,
    ) -> Completion:
        """Get one answer; only those of the turn itself decide where it stays.

        Raises: ProviderFailed, AllRoutesFailed, NeedsOperator, BudgetReached.
        """
        occasion = Occasion(turn_id, purpose, key)
        if purpose != "turn":
            completion, _ = await self._begin(request, on_delta, occasion)
            return completion
        bound = self._turns.get(turn_id)
        if bound is None or not isinstance(request.messages[-1], ToolMessage):
            completion, provider = await self._begin(request, on_delta, occasion)
            self._remember(turn_id, provider)
            return completion
        outcome = await self._ask(bound, request, on_delta, CONTINUATION, occasion)
        if isinstance(outcome, ProviderFailed):
            raise outcome
        return outcome

    async def _begin(self, request: ChatRequest, on_delta: OnDelta, occasion: Occasion) -> tuple[Completion, Provider]:
        order = self._order()
        if occasion.purpose == "compaction":  # reference 3, section 9.7; the first route is asked in any case
            order = [one for one in order if one is self._routes[0] or _holds(one, request)]
        if not order:
            raise NeedsOperator("no model is configured", advice="run `fermix setup`")
        self._tell_detour(occasion.turn_id, order[0].route)
        failures: list[ProviderFailed] = []
        for provider in order:
            if failures:
                self._tell(occasion.turn_id, order[len(failures) - 1].route, provider.route, failures[-1].kind)
            retries = LAST_ROUTE if provider is order[-1] else OTHERS_LEFT
            outcome = await self._ask(provider, request, on_delta, retries, occasion)
            if isinstance(outcome, Completion):
                return outcome, provider
            failures.append(outcome)
            if outcome.streamed or outcome.kind not in FAILOVER:
                break
        raise failures[0] if len(failures) == 1 else AllRoutesFailed(tuple(failures))

    async def _ask(
        self, provider: Provider, request: ChatRequest, on_delta: OnDelta, retries: Retries, occasion: Occasion
    ) -> Completion | ProviderFailed:
        """Ask one route, more than once if need be; a failure is returned, because the caller decides by it."""
        tries = 0
        while True:
            try:
                completion = await self._attempts.make(occasion, provider, request, on_delta)
            except ProviderFailed as error:
                tries += 1
                pause_s = retries.pause_s(error, tries)
                if pause_s is None:
                    self._cooling.note(error)
                    return error
                log.info("asking again in %.2f s: %s", pause_s, error)
            else:
                self._cooling.forget(provider.route)
                return completion
            await self._clock.sleep(pause_s)

    def _order(self) -> list[Provider]:
        """Return the chain with routes that cool down at its end: asked last, but asked."""
        return sorted(self._routes, key=lambda provider: self._cooling.is_cooling(provider.route))

    def _remember(self, turn_id: str, provider: Provider) -> None:
        self._turns[turn_id] = provider
        if len(self._turns) > REMEMBERED_TURNS:
            self._turns.popitem(last=False)

    def _tell_detour(self, turn_id: str, chosen: Route) -> None:
        preferred = self._routes[0].route
        if chosen != preferred:
            self._tell(turn_id, preferred, chosen, "cooling down")

    def _tell(self, turn_id: str, source: Route, target: Route, reason: str) -> None:
        log.warning("moving from %s to %s: %s", source, target, reason)
        self._events.emit(ProviderChanged(turn_id, str(source), str(target), reason))


def _holds(provider: Provider, request: ChatRequest) -> bool:
    """Say whether a request fits into a route's window beside its answer, by estimate."""
    asked = prompt_tokens(request.system, request.tools) + sum(map(message_tokens, request.messages))
    answer = min(request.max_output_tokens or provider.facts.max_output_tokens, provider.facts.context_tokens // 4)
    return asked + answer <= provider.facts.context_tokens


class _Cooling:
    """Which routes failed lately. An overload belongs to one model, an empty purse to all models of a key (PRV-18).

    Kept in memory only and short, unless the server itself named the time (PRV-19).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def note(self, error: ProviderFailed) -> None:
        default_s = COOL_S.get(error.kind)
        if default_s is not None:
            domain = error.provider if error.kind is ErrorKind.QUOTA else str(Route(error.provider, error.model))
            self._until[domain] = self._clock.monotonic() + (error.retry_after_s or default_s)

    def forget(self, route: Route) -> None:
        self._until.pop(str(route), None)
        self._until.pop(route.provider, None)

    def is_cooling(self, route: Route) -> bool:
        now = self._clock.monotonic()
        return any(self._until.get(domain, now) > now for domain in (str(route), route.provider))
