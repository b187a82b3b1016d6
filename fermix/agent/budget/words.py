"""What people read when the budget refuses a call: to the owner all of it, to a guest no figure."""

from __future__ import annotations

from datetime import date, timedelta
from typing import assert_never

from fermix.agent.budget.limits import BACKGROUND_SHARE, Reached, Span, Unit
from fermix.agent.budget.money import MILLION
from fermix.errors import LimitReached, NeedsOperator
from fermix.protocol.usage_lines import dollars

GUEST = {
    Span.TURN: "That is more than I may spend on one message. Ask for a smaller part of it.",
    Span.DAY: "I have done as much as I may for today. Please ask again tomorrow.",
    Span.MONTH: "I have done as much as I may for this month. Please ask again next month.",
}
_OF = {Span.TURN: "one message", Span.DAY: "a day", Span.MONTH: "a month"}
_USED = {Span.TURN: "for this message", Span.DAY: "today", Span.MONTH: "this month"}


class BudgetReached(LimitReached):
    """A limit of `[budget]` leaves no room for a call. `guest_text` is the sentence for everybody but the owner."""

    def __init__(self, route: str, reached: Reached, day: date, zone: str, *, background: bool) -> None:
        super().__init__(
            f"{route}: {reached.span}_{reached.unit} of [budget] is reached ({reached.spent} used, {reached.held} held,"
            f" {reached.limit} allowed)",
            limit="budget",
            user_text=_for_owner(route, reached, _resets(reached.span, day, zone), background=background),
        )
        self.reached = reached
        self.guest_text = GUEST[reached.span]


class PriceUnknown(NeedsOperator):
    """A limit in dollars is set, and nobody knows what this model costs."""

    def __init__(self, route: str) -> None:
        super().__init__(
            f"I did not ask {route}: the budget has a limit in dollars, and the price of this model is not known",
            advice=f'write it into config.toml as [budget.prices."{route}"] with input = … and output = … (dollars per '
            "million tokens), or limit tokens instead; then `fermix stop` and `fermix start`",
        )


def amount(number: int, unit: Unit) -> str:
    """Return millionths of a dollar, or tokens, for people."""
    return dollars(number / MILLION) if unit == "usd" else f"{number:,} tokens"


def begins_anew(span: Span, day: date) -> str:
    """Return the date on which a limit begins anew, "" for that of a turn."""
    match span:
        case Span.TURN:
            return ""
        case Span.DAY:
            return (day + timedelta(days=1)).isoformat()
        case Span.MONTH:
            return (day.replace(day=1) + timedelta(days=32)).replace(day=1).isoformat()
        case _:
            assert_never(span)


def _resets(span: Span, day: date, zone: str) -> str:
    if span is Span.TURN:
        return "The next message begins anew."
    return f"It begins anew on {begins_anew(span, day)} at 00:00 ({zone})."


def _for_owner(route: str, reached: Reached, resets: str, *, background: bool) -> str:
    unit, span = reached.unit, reached.span
    held = f", and calls that run now hold {amount(reached.held, unit)}" if reached.held else ""
    share = f" What nobody waits for gets {BACKGROUND_SHARE:.0%} of it." if background and span is not Span.TURN else ""
    return (
        f"I did not ask {route}: the limit of {amount(reached.limit, unit)} for {_OF[span]} leaves no room for this "
        f"call. Used {_USED[span]}: {amount(reached.spent, unit)}{held}.{share} {resets} To raise it, change "
        f"{span}_{unit} in [budget] of config.toml, then `fermix stop` and `fermix start`; `fermix usage` shows more."
    )
