"""The bench runs and tells the truth; how fast things are is for `make bench` to judge, on a machine of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench.figures import Figure, medians


def test_a_figure_past_its_bound_is_not_ok() -> None:
    """`make bench`: one JSON object a line with name, value, unit, must and ok."""
    line = json.loads(Figure("screen.key_echo", 50.12345, "ms", 50.0).line())

    assert line == {"name": "screen.key_echo", "value": 50.123, "unit": "ms", "must": 50.0, "ok": False}


def test_a_figure_without_a_bound_is_only_told() -> None:
    assert Figure("python.pass", 1e9, "ms").ok


def test_measures_alternate_and_their_first_round_is_not_counted() -> None:
    called: list[str] = []

    def measure(name: str) -> float:
        called.append(name)
        return 1000.0 if called.count(name) == 1 else float(called.count(name))

    assert medians(3, lambda: measure("one"), lambda: measure("other")) == [3.0, 3.0]
    assert called == ["one", "other"] * 4


@pytest.mark.slow
def test_two_hundred_conversations_at_once_are_all_answered_in_their_own_place() -> None:
    """Issue "The spine", numbers: none lost or crossed."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", "load"], capture_output=True, check=False, text=True, timeout=50
    )

    figures = {line["name"]: line["value"] for line in map(json.loads, done.stdout.splitlines())}
    assert figures["load.lost_or_crossed"] == 0
    assert figures["load.longest_callback"] > 0
