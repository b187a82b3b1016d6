"""Plain and --json output shared by the verbs. Answers go to stdout, everything else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

START_ADVICE = "; start one with `fermix start` (or open `fermix`)"


def wrong_use(verb: str, problem: str) -> int:
    """Say what is wrong with a call and where help is; returns exit code 2."""
    print(f"fermix {verb}: {problem}\nTry `fermix {verb} --help`.", file=sys.stderr)
    return 2


def failed(verb: str, problem: str, *, as_json: bool = False) -> int:
    """Say why a verb could not do its work; returns exit code 1."""
    if as_json:
        print_json({"status": "error", "error": "failed", "message": problem})
    else:
        print(f"fermix {verb}: {problem}", file=sys.stderr)
    return 1


def not_running(verb: str, *, as_json: bool = False, advice: str = START_ADVICE) -> int:
    """Say that no daemon runs and what to type; returns exit code 3."""
    told = f"no daemon runs{advice}"
    if as_json:
        print_json({"status": "error", "error": "not_running", "message": told})
    else:
        print(f"fermix {verb}: {told}", file=sys.stderr)
    return 3


def print_json(value: Mapping[str, object]) -> None:
    """Print it readable in every language; what a terminal would act on or hide is escaped as JSON allows."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    print("".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text))
