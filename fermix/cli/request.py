"""Ask the running daemon one thing, for the verbs that only show its answer."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fermix.cli import output
from fermix.protocol.ask import Connection, DaemonGone, DaemonNotRunning, RequestFailed, socket_path


def request(verb: str, method: str, params: Mapping[str, object], *, as_json: bool) -> dict[str, object] | int:
    """Return the answer; an exit code when there is none, and why has been told."""
    try:
        connection = Connection(socket_path(os.environ), client=verb)
        try:
            return connection.request(method, params)
        finally:
            connection.close()
    except DaemonNotRunning:
        return output.not_running(verb, as_json=as_json)
    except (OSError, DaemonGone, RequestFailed) as error:
        return output.failed(verb, f"cannot talk to the daemon: {error}", as_json=as_json)
