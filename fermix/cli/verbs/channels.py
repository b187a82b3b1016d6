"""`fermix channels`: which chat channels are configured, and who wrote lately without being allowed to."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from typing import cast

from fermix.cli import output
from fermix.protocol.ask import Connection, DaemonGone, DaemonNotRunning, RequestFailed, socket_path
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
    try:
        connection = Connection(socket_path(os.environ), client="channels")
        found = cast("Channels", connection.request("channels", {}))  # written by our daemon: protocol/methods.py
        connection.close()
    except DaemonNotRunning:
        return output.not_running("channels", as_json=options.json)
    except (OSError, DaemonGone, RequestFailed) as error:
        return output.failed("channels", f"cannot talk to the daemon: {error}", as_json=options.json)
    if options.json:
        output.print_json(cast("Mapping[str, object]", found))
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
