"""`fermix stop`: end the daemon and wait until it is gone."""

from __future__ import annotations

import argparse
import os
import time

from fermix.cli import output
from fermix.home import Home, is_held
from fermix.protocol.ask import Connection, DaemonGone, DaemonNotRunning, RequestFailed, socket_path

STOP_TIMEOUT_S = 12.0  # the daemon drains and flushes within 10 s
POLL_S = 0.05


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fermix stop", description="Stop the daemon: running turns are drained, at most 10 seconds."
    )
    parser.parse_args(argv)
    try:
        connection = Connection(socket_path(os.environ), client="stop")
    except DaemonNotRunning:
        return output.not_running("stop", advice="")
    except (OSError, DaemonGone, RequestFailed) as error:
        return output.failed("stop", f"cannot talk to the daemon: {error}")
    pid = connection.welcome.get("pid")
    try:
        connection.request("daemon.stop", {})
    except (OSError, DaemonGone, RequestFailed) as error:
        return output.failed("stop", f"the daemon did not take the request: {error}")
    finally:
        connection.close()
    if not _gone(Home.locate(os.environ)):
        return output.failed(
            "stop", f"the daemon (pid {pid}) still runs after {STOP_TIMEOUT_S:.0f} s; see `fermix logs`"
        )
    print("daemon stopped")
    return 0


def _gone(home: Home) -> bool:
    deadline = time.monotonic() + STOP_TIMEOUT_S
    while is_held(home):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True
