"""Ask the owner's helpers for values that commands may get: a password manager, the system's keyring.

A helper is a program that the owner chose, so it runs as he would run it and not behind the walls of commands; its
environment is clean all the same. What it prints is hidden in outputs before anybody sees one. What it prints too
late, or beside an error, is thrown away and shown nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fermix.agent.sandbox.environment import Helper, Wanted
from fermix.config.secrets import register_passing
from fermix.native.child import Finished, Limits, run_child

MOST_VALUE_BYTES = 8_192
ALL_TOGETHER_S = 5.0
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Passed:
    """What a command gets besides the base; `missing` says of each other variable why it has no value."""

    variables: Mapping[str, str]
    missing: Mapping[str, str]

    def note(self) -> str:
        """Say what is missing, for the end of a result; "" when nothing is."""
        return "".join(f"\n[{name} has no value here: {reason}]" for name, reason in self.missing.items())


async def look_up(wanted: Wanted, *, together_s: float = ALL_TOGETHER_S) -> Passed:
    """Ask every helper; all together take at most 5 seconds. One that gives no value is never an error."""
    until = asyncio.get_running_loop().time() + together_s
    free = asyncio.Semaphore(AT_ONCE)

    async def ask(helper: Helper) -> None:
        async with free:
            answer = await _ask(helper, wanted.environment, until - asyncio.get_running_loop().time())
        (values if answer.ok else missing)[helper.name] = answer.text

    values, missing = dict(wanted.values), dict(wanted.missing)
    async with asyncio.TaskGroup() as group:
        for helper in wanted.helpers:
            group.create_task(ask(helper), name=f"helper for {helper.name}")
    return Passed(values, missing)


@dataclass(frozen=True, slots=True)
class _Answer:
    ok: bool
    text: str


async def _ask(helper: Helper, environment: Mapping[str, str], left_s: float) -> _Answer:
    if left_s <= 0:
        return _Answer(False, f"there was no time left to ask its helper; all have {ALL_TOGETHER_S:g} s together")
    limits = Limits(timeout_s=min(helper.timeout_s, left_s), output_bytes=MOST_VALUE_BYTES + 2)
    try:
        finished = await run_child(helper.argv, cwd=Path("/"), env=environment, limits=limits, errors="dropped")
    except OSError as error:
        return _Answer(False, f"its helper cannot be started: {error.strerror}")
    problem = _problem(finished)
    value = _without_line_end(finished.output)
    if problem is not None or (problem := _why_no_value(value)) is not None:
        return _Answer(False, f"its helper {problem}")
    text = value.decode("utf-8")
    register_passing(helper.name, text)
    return _Answer(True, text)


def _problem(finished: Finished) -> str | None:
    match finished.ending:
        case "timeout":
            return "took too long"
        case "output_cap":
            return f"printed more than {MOST_VALUE_BYTES} bytes"
        case "exited":
            return f"ended with exit code {finished.exit_code}" if finished.exit_code else None


def _why_no_value(value: bytes) -> str | None:
    if not value:
        return "printed nothing"
    if len(value) > MOST_VALUE_BYTES:
        return f"printed more than {MOST_VALUE_BYTES} bytes"
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return "printed no UTF-8 text"
    return None if text.isprintable() else "printed more than one line of text"


def _without_line_end(output: bytes) -> bytes:
    return output.removesuffix(b"\n").removesuffix(b"\r")
