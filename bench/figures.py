"""One figure of the bench, and how a series becomes one."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """`must` is the largest value that passes, None for what is only told."""

    name: str
    value: float
    unit: str
    must: float | None = None

    @property
    def ok(self) -> bool:
        return self.must is None or self.value <= self.must

    def line(self) -> str:
        shown = round(self.value, 3)
        return json.dumps({"name": self.name, "value": shown, "unit": self.unit, "must": self.must, "ok": self.ok})


def p50(values: Sequence[float]) -> float:
    return statistics.median(values)


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[-1]


def medians(runs: int, *measures: Callable[[], float]) -> list[float]:
    """Measure each in turn, so that a busy minute meets all of them alike. The first round is not counted."""
    rounds = [[measure() for measure in measures] for _ in range(runs + 1)][1:]
    return [p50(values) for values in zip(*rounds, strict=True)]
