"""`fermix usage`: what the models cost, by day, model and purpose, and how the limits stand."""

from __future__ import annotations

import argparse
from typing import cast

from fermix.cli import output
from fermix.cli.change import EXIT_CODES, Failed, ask, fail
from fermix.protocol.usage import UsageReport
from fermix.protocol.usage_lines import lines


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fermix usage",
        description="Tell what the models cost: today, this month, and by day, model and purpose for the last seven "
        "days. Limits are set in [budget] of config.toml.",
        epilog=EXIT_CODES,
    )
    span = parser.add_mutually_exclusive_group()
    span.add_argument("--days", type=int, metavar="N", help="of the last N days, today included")
    span.add_argument("--month", action="store_true", help="of this month")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    wish: dict[str, object] = {"month": True} if options.month else {}
    if options.days is not None:
        wish["days"] = options.days
    try:
        answer = ask("usage", wish)
    except Failed as error:
        return fail("usage", error, as_json=options.json)
    if options.json:
        output.print_json(answer)
    else:
        print("\n".join(lines(cast("UsageReport", answer))))  # written by our daemon, or by us
    return 0
