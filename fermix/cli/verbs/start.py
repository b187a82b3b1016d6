"""`fermix start`: the daemon in the background."""

from __future__ import annotations

import argparse
import os

from fermix.cli import output
from fermix.cli.launch import ensure_daemon
from fermix.errors import FermixError
from fermix.home import Home


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fermix start", description="Start the daemon in the background; it keeps running until `fermix stop`."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    try:
        running = ensure_daemon(Home.locate(os.environ), os.environ)
    except FermixError as error:
        return output.failed("start", str(error), as_json=options.json)
    if options.json:
        output.print_json({"status": "ok", "pid": running.pid, "started": running.fresh})
    elif running.fresh:
        print(f"daemon started (pid {running.pid}); it keeps running until `fermix stop`")
    else:
        print(f"a daemon already runs (pid {running.pid})")
    return 0
