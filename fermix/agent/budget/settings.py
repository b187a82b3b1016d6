"""`[budget]` of config.toml: how much the models may cost, and prices that the catalog does not know.

A limit that is left out does not exist; one of 0 lets nothing through that costs anything. Models that cost nothing,
such as the local one, are never limited. A day and a month are those of `[fermix_core.personalization] timezone`,
without it of the machine's own time zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from fermix.agent.budget.limits import Limits, Span
from fermix.agent.budget.money import MILLION, Price
from fermix.config.model import Settings

SECTION = "budget"

Dollars = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=0, le=1_000_000_000_000)]


class PriceSettings(Settings):
    """`[budget.prices."PROVIDER/MODEL"]`: US dollars for a million tokens."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    """Of what the provider had kept of the prompt; None takes it at the price of `input`."""


class BudgetSettings(Settings):
    """`[budget]`. Amounts in US dollars, and in tokens of prompts and answers together."""

    turn_usd: Dollars | None = None
    day_usd: Dollars | None = None
    month_usd: Dollars | None = None
    turn_tokens: Tokens | None = None
    day_tokens: Tokens | None = None
    month_tokens: Tokens | None = None
    prices: Mapping[str, PriceSettings] = Field(default_factory=lambda: MappingProxyType({}))
    """By "provider/model"; they stand before those of the catalog."""

    @property
    def limits(self) -> Limits:
        dollars = {Span.TURN: self.turn_usd, Span.DAY: self.day_usd, Span.MONTH: self.month_usd}
        tokens = {Span.TURN: self.turn_tokens, Span.DAY: self.day_tokens, Span.MONTH: self.month_tokens}
        return Limits(
            {span: round(amount * MILLION) for span, amount in dollars.items() if amount is not None},
            {span: amount for span, amount in tokens.items() if amount is not None},
        )

    def price(self, route: str) -> Price | None:
        """Return the owner's own price of "provider/model"."""
        stated = self.prices.get(route)
        return None if stated is None else Price(stated.input, stated.output, stated.cached)
