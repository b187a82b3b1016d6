"""`usage` on the socket: what the models cost. Written by the daemon, or by the verb itself where none runs."""

from __future__ import annotations

from typing import NotRequired  # pydantic reads it only from here before Python 3.12

from typing_extensions import TypedDict


class GetUsage(TypedDict):
    """Params. `days` counts today; without it and without `month` it is the last seven."""

    days: NotRequired[int]
    month: NotRequired[bool]


class UsageAmount(TypedDict):
    """What models that are not free used. `held_…` is the most that calls which run now may still cost."""

    usd: float
    tokens: int
    held_usd: float
    held_tokens: int


class UsageLimit(TypedDict):
    """`limit` is the key in `[budget]`. One of a turn has no `used`, `held` and `begins_anew` (a local date)."""

    limit: str
    allowed: float
    used: float | None
    held: float | None
    begins_anew: str | None


class UsageRow(TypedDict):
    """The calls of one local day, purpose and model that have ended. `cached_tokens` are part of `input_tokens`;
    `unpriced` calls are not in `usd`, `estimated` ones were not counted by the provider.
    """

    day: str
    purpose: str
    model: str
    calls: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    usd: float
    unpriced: int
    estimated: int


class UsageReport(TypedDict):
    """`rows` stand with the latest day first, and in a day the dearest."""

    timezone: str
    since: str
    today: UsageAmount
    month: UsageAmount
    limits: list[UsageLimit]
    rows: list[UsageRow]
