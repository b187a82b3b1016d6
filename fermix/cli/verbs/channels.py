"""`fermix channels`: which chat channels are configured, and who wrote lately without being allowed to."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import cast

from fermix.cli import output
from fermix.cli.request import request
from fermix.protocol.methods import Channels
from fermix.visible import spelled


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fermix channels",
        description="Tell which chat channels are on and who was denied lately, so that you can let them in.",
        epilog="exit codes: 0 ok, 1 the daemon failed, 3 no daemon runs",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    answer = request("channels", "channels", {}, as_json=options.json)
    if isinstance(answer, int):
        return answer
    found = cast("Channels", answer)  # written by our daemon: protocol/methods.py
    if options.json:
        output.print_json(answer)
    else:
        print("\n".join(_lines(found)))
    return 0


def _lines(found: Channels) -> Iterator[str]:
    for row in found["channels"]:
        guests = f"{row['guests']} guest{'' if row['guests'] == 1 else 's'}"
        state = f"on, owner {row['owner'] or 'not set'}, {guests}" if row["enabled"] else "off"
        yield f"{row['channel']:10} {state}{'; ' if row['problem'] else ''}{row['problem']}"
    if not found["denied"]:
        yield "\nNobody was denied since the daemon started."
        return
    yield "\nDenied since the daemon started, the latest first (names are what these people call themselves):"
    for row in found["denied"]:
        times = f"{row['times']} x, last {row['at']}"
        yield f'{row["channel"]:10} {spelled(row["sender"])}  {times}  "{spelled(row["name"])}"'
    yield "\nTo let one in, put the id into owner_user_id or the list of the channel in config.toml,"
    yield "then `fermix stop` and `fermix start`: the daemon reads it at start."
