"""`fermix status`: what runs, who would answer, and what is missing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

from fermix import __version__
from fermix.cli import output
from fermix.cli.request import request
from fermix.protocol.methods import Status

WORDS = {"": "", "up": "up", "down": "down", "parked": "waits"}
COLOURS = {"": "default", "up": "green", "down": "red", "parked": "yellow"}


class Row(NamedTuple):
    """One line. `state` is that of a service, "" in any other row."""

    name: str
    value: str
    state: Literal["", "up", "down", "parked"] = ""


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fermix status",
        description="Tell what runs and what is missing.",
        epilog="exit codes: 0 ready, 1 runs but something is missing, 3 no daemon runs",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    answer = request("status", "status", {}, as_json=options.json)
    if isinstance(answer, int):
        return answer
    status = cast("Status", answer)  # written by our daemon: protocol/methods.py
    if options.json:
        output.print_json(answer)
    else:
        _show(status)
    return 0 if status["overall"] == "ready" else 1


def _show(status: Status) -> None:
    if sys.stdout.isatty():
        _show_table(status)
        return
    print(f"fermix {_overall(status)}")
    for row in _rows(status):
        print(f"{row.name}: {row.value} {WORDS[row.state]}".rstrip())
    if status["version"] != __version__:
        print(_other_version(status))


def _show_table(status: Status) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    console.print(f"[bold]fermix[/] {_overall(status)}")
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for row in _rows(status):
        table.add_row(f"[dim]{row.name}[/]", f"{escape(row.value)} [{COLOURS[row.state]}]{WORDS[row.state]}[/]")
    console.print(table)
    if status["version"] != __version__:
        console.print(f"[yellow]{escape(_other_version(status))}[/]")


def _overall(status: Status) -> str:
    return status["overall"].replace("_", " ")


def _other_version(status: Status) -> str:
    return f"the daemon is version {status['version']}, this program {__version__}: restart it"


def _rows(status: Status) -> Iterator[Row]:
    yield Row("daemon", f"pid {status['pid']}, version {status['version']}, up {_duration(status['uptime_s'])}")
    yield Row("home", status["home"])
    yield Row("http", status["http"])
    yield Row("answers with", status["model"] or "nobody yet")
    for provider in status["providers"]:
        state = "usable" if provider["usable"] else provider["problem"]
        primary = ", primary" if provider["primary"] else ""
        told = f"{provider['provider']}/{provider['model']}: {state} (key: {provider['key_from']}{primary})"
        yield Row("provider", told)
    local = status["local_model"]
    primary = ", primary" if local["primary"] else ""
    yield Row("local model", f"{local['name']}: {local['state']}{primary} {local['detail']}".rstrip())
    for service in status["services"]:
        yield Row("service", service["service"], service["state"])  # why it is not up is told under "missing"
    yield Row("commands", status["commands"]["told"])
    if (memory_bytes := status["memory_bytes"]) is not None:
        yield Row("memory", f"{memory_bytes / 1e6:.0f} MB, {status['open_files']} open files")
    if status["environment"]:
        yield Row("environment", "read at start: " + ", ".join(status["environment"]))
    yield Row("turns", f"{status['turns_running']} running, {status['turns_waiting']} waiting")
    for failure in status["failures"]:
        yield Row("missing", failure)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
