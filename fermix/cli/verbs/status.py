"""`fermix status`: what runs, who would answer, and what is missing."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from typing import cast

from fermix import __version__
from fermix.cli import output
from fermix.protocol.ask import Connection, DaemonGone, DaemonNotRunning, RequestFailed, socket_path
from fermix.protocol.methods import Status

MARKS = {"up": "[green]up[/]", "down": "[red]down[/]", "parked": "[yellow]waits[/]"}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fermix status",
        description="Tell what runs and what is missing.",
        epilog="exit codes: 0 ready, 1 runs but something is missing, 3 no daemon runs",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    try:
        connection = Connection(socket_path(os.environ), client="status")
        status = cast("Status", connection.request("status", {}))  # written by our daemon: protocol/methods.py
        connection.close()
    except DaemonNotRunning:
        return output.not_running("status", as_json=options.json)
    except (OSError, DaemonGone, RequestFailed) as error:
        return output.failed("status", f"cannot talk to the daemon: {error}", as_json=options.json)
    if options.json:
        output.print_json(cast("Mapping[str, object]", status))
    else:
        _show(status)
    return 0 if status["overall"] == "ready" else 1


def _show(status: Status) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]fermix[/] {status['overall'].replace('_', ' ')}")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in _rows(status, escape):
        table.add_row(f"[dim]{name}[/]", value)
    console.print(table)
    if status["version"] != __version__:
        console.print(f"[yellow]the daemon is version {status['version']}, this program {__version__}: restart it[/]")


def _rows(status: Status, escape: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    yield "daemon", f"pid {status['pid']}, version {status['version']}, up {_duration(status['uptime_s'])}"
    yield "home", escape(status["home"])
    yield "http", escape(status["http"])
    yield "answers with", escape(status["model"] or "nobody yet")
    for provider in status["providers"]:
        state = "usable" if provider["usable"] else provider["problem"]
        primary = ", primary" if provider["primary"] else ""
        yield (
            "provider",
            escape(f"{provider['provider']}/{provider['model']}: {state} (key: {provider['key_from']}{primary})"),
        )
    local = status["local_model"]
    primary = ", primary" if local["primary"] else ""
    yield "local model", escape(f"{local['name']}: {local['state']}{primary} {local['detail']}".rstrip())
    for service in status["services"]:
        yield "service", escape(service["service"]) + " " + MARKS[service["state"]] + " " + escape(service["reason"])
    if status["environment"]:
        yield "environment", escape("read at start: " + ", ".join(status["environment"]))
    yield "turns", f"{status['turns_running']} running, {status['turns_waiting']} waiting"
    for failure in status["failures"]:
        yield "missing", escape(failure)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
