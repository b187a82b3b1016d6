"""Money in whole millionths of a US dollar, and what tokens cost. Pure.

A price in dollars per million tokens is a price in millionths per token. Every cost is rounded up, so that
nothing that has a price is booked as free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from fermix.agent.model import Usage

MILLION = 1_000_000
_NOISE_DIGITS = 6  # of a float product; without it 0.1 * 30 would be rounded up to 4


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens. `cached` is that of prompt tokens the provider had kept, None when unknown."""

    input: float
    output: float
    cached: float | None = None

    @property
    def is_free(self) -> bool:
        return self.input == 0 and self.output == 0

    def cost(self, usage: Usage) -> int:
        """Return millionths of a dollar; cached tokens of unknown price are taken at the full one."""
        kept = min(usage.cached_tokens or 0, usage.input_tokens)
        kept_price = self.input if self.cached is None else self.cached
        exact = (usage.input_tokens - kept) * self.input + kept * kept_price + usage.output_tokens * self.output
        return math.ceil(round(exact, _NOISE_DIGITS))
