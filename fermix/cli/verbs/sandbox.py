"""`fermix sandbox`: what tools may open and what commands get; and the changes to that."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import cast

from fermix.cli import output
from fermix.cli.change import Failed, ask, change, fail, parse, whole
from fermix.protocol.sandbox import Explained, SandboxStatus, Variable
from fermix.protocol.sandbox_lines import command_lines, status_lines, variable_lines
from fermix.visible import spelled

USAGE = """fermix sandbox [status]
       fermix sandbox explain [PATH]
       fermix sandbox mode strict|standard|open
       fermix sandbox env [allow|deny|unset NAME]
       fermix sandbox env get NAME [--unsafe-print]
       fermix sandbox env set NAME -- PROGRAM ARGUMENT ...
       fermix sandbox commands [profile bare|assistant|extended]
       fermix sandbox commands enable|disable ai_tools|dev_tools"""


def main(argv: list[str]) -> int:
    stated = parse(
        "sandbox", argv, usage=USAGE,
        description="Tell what tools may open and what commands get, or change it. What opens anything is shown to you "
        "whole and needs your yes.",
        may_reveal=True,
    )  # fmt: skip
    as_json = stated.as_json
    match stated.words:
        case () | ("status",):
            return _show(status_lines, as_json=as_json)
        case ("explain",):
            return _show(_roots, as_json=as_json)
        case ("explain", path):
            return _explain(path, as_json=as_json)
        case ("env",):
            return _show(variable_lines, as_json=as_json)
        case ("env", "get", name):
            return _get(name, reveal=stated.reveals, as_json=as_json)
        case ("commands",) | ("commands", "list"):
            return _show(command_lines, as_json=as_json)
        case words:
            return change("sandbox", ["sandbox", *words], as_json=as_json)


def _show(lines: Callable[[SandboxStatus], list[str]], *, as_json: bool) -> int:
    try:
        answer = ask("sandbox.status", {})
    except Failed as error:
        return fail("sandbox", error, as_json=as_json)
    _print(answer, lines(cast("SandboxStatus", answer)), as_json=as_json)  # written by our daemon, or by us
    return 0


def _explain(path: str, *, as_json: bool) -> int:
    try:
        answer = ask("sandbox.explain", {"path": whole(path), "cwd": _cwd()})
    except Failed as error:
        return fail("sandbox", error, as_json=as_json)
    found = cast("Explained", answer)  # written by our daemon, or by us
    told = f"{'open' if found['open'] else 'closed'}: {spelled(found['why'])}"
    _print(answer, [spelled(found["path"]), told], as_json=as_json)
    return 0


def _get(name: str, *, reveal: bool, as_json: bool) -> int:
    """Look a variable up as a command would; what it holds is printed only when that was asked for."""
    try:
        answer = ask("sandbox.variable", {"name": name, "reveal": reveal})
    except Failed as error:
        return fail("sandbox", error, as_json=as_json)
    found = cast("Variable", answer)  # written by our daemon, or by us
    if found["problem"]:
        return output.failed("sandbox", f"{name} has no value: {found['problem']}", as_json=as_json)
    masked = f"{name} has a value of {found['chars']} characters; --unsafe-print shows it"
    _print(answer, [masked if found["value"] is None else found["value"]], as_json=as_json)
    return 0


def _roots(status: SandboxStatus) -> list[str]:
    return [f"{root['source']}: {spelled(root['path'])}" for root in status["roots"]]


def _cwd() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - pathlib is no use to a verb that only passes it on
    except OSError:
        return None  # deleted under us


def _print(answer: Mapping[str, object], lines: list[str], *, as_json: bool) -> None:
    if as_json:
        output.print_json(answer)
    else:
        print("\n".join(lines))
