"""The state of the books as others read it: the socket, the verb and `/usage`."""

from __future__ import annotations

from datetime import date, timedelta

from fermix.agent.budget.budget import Budget, LimitUse
from fermix.agent.budget.ledger import Sum
from fermix.agent.budget.limits import Use
from fermix.agent.budget.money import MILLION
from fermix.protocol.usage import UsageAmount, UsageLimit, UsageReport, UsageRow


async def report(budget: Budget, *, days: int | None = None) -> UsageReport:
    """Tell of the last `days` days, today included; None: of this month. Raises: NeedsOperator, Unavailable."""
    since = budget.today.replace(day=1) if days is None else _days_ago(budget.today, days - 1)
    sums = await budget.sums(since)
    today, month = budget.spent()
    return {
        "timezone": budget.zone,
        "since": since.isoformat(),
        "today": _amount(today),
        "month": _amount(month),
        "limits": [_limit(limit) for limit in budget.limits()],
        "rows": [_row(one) for one in sums],
    }


def _days_ago(day: date, days: int) -> date:
    return day - timedelta(days=min(days, day.toordinal() - 1))


def _amount(use: Use) -> UsageAmount:
    return {
        "usd": use.spent.money / MILLION,
        "tokens": use.spent.tokens,
        "held_usd": use.held.money / MILLION,
        "held_tokens": use.held.tokens,
    }


def _limit(row: LimitUse) -> UsageLimit:
    scale = MILLION if row.unit == "usd" else 1
    return {
        "limit": row.name,
        "allowed": row.limit / scale,
        "used": None if row.use is None else row.use.spent.of(row.unit) / scale,
        "held": None if row.use is None else row.use.held.of(row.unit) / scale,
        "begins_anew": row.begins_anew or None,
    }


def _row(one: Sum) -> UsageRow:
    return {
        "day": one.day,
        "purpose": one.purpose,
        "model": f"{one.provider}/{one.model}",
        "calls": one.calls,
        "input_tokens": one.input_tokens,
        "cached_tokens": one.cached_tokens,
        "output_tokens": one.output_tokens,
        "usd": one.money / MILLION,
        "unpriced": one.unpriced,
        "estimated": one.estimated,
    }
