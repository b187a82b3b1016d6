"""What the models cost, in words, for a chat and for a terminal. Foreign characters are spelled out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from fermix.protocol.usage import UsageAmount, UsageLimit, UsageReport, UsageRow
from fermix.visible import spelled

CENT = 0.01


def lines(report: UsageReport) -> Iterator[str]:
    """Tell everything, as plain lines."""
    yield f"today: {_amount(report['today'])}"
    yield f"this month: {_amount(report['month'])}"
    yield from map(_limit, report["limits"])
    if not report["limits"]:
        yield "no limit is set; [budget] in config.toml takes day_usd, month_tokens and others"
    yield ""
    if not report["rows"]:
        yield f"No model was asked since {report['since']}."
    for day, rows in groupby(report["rows"], key=lambda row: row["day"]):
        yield day
        yield from map(_row, rows)
    yield from _notes(report["rows"])


def dollars(amount: float) -> str:
    """Return cents, or two figures of what is less than one."""
    return f"${amount:,.2f}" if amount == 0 or amount >= CENT else f"${amount:.6f}".rstrip("0")


def _amount(used: UsageAmount) -> str:
    held = f", {dollars(used['held_usd'])} held by calls that run" if used["held_tokens"] else ""
    return f"{dollars(used['usd'])}, {used['tokens']:,} tokens{held}"


def _limit(row: UsageLimit) -> str:
    def told(number: float) -> str:
        return dollars(number) if row["limit"].endswith("_usd") else f"{int(number):,} tokens"

    if row["used"] is None:
        return f"limit {row['limit']}: {told(row['allowed'])}"
    return f"limit {row['limit']}: {told(row['used'])} of {told(row['allowed'])}, anew on {row['begins_anew']}"


def _row(row: UsageRow) -> str:
    cached = f" ({row['cached_tokens']:,} cached)" if row["cached_tokens"] else ""
    price = "price unknown" if row["unpriced"] == row["calls"] else dollars(row["usd"])
    calls = f"{row['calls']} call{'' if row['calls'] == 1 else 's'}"
    marks = ("~" if row["estimated"] else "") + ("+" if 0 < row["unpriced"] < row["calls"] else "")
    tokens = f"{row['input_tokens']:,}{cached} in, {row['output_tokens']:,} out"
    return f"  {spelled(row['model'])} {row['purpose']}: {price}{marks}, {calls}, {tokens}"


def _notes(rows: Sequence[UsageRow]) -> Iterator[str]:
    if any(row["estimated"] for row in rows):
        yield "~ in part by estimate: the call was stopped or broke off, or its provider counts nothing"
    if any(0 < row["unpriced"] < row["calls"] for row in rows):
        yield "+ without the calls whose price was not known"
    if any(not (row["usd"] or row["unpriced"]) and row["input_tokens"] + row["output_tokens"] for row in rows):
        yield "What costs nothing is listed, and neither counted above nor limited."
