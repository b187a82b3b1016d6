"""Model of the gateway (issue 3): random lives of the real thing, and broken ones that must be caught."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.proof.broken import BROKEN
from tests.proof.machine import THEMES, Theme, machine
from tests.proof.model import Broken, Promise

EXAMPLES = int(os.environ.get("PROOF_EXAMPLES", "2000"))
STEPS = 50
EXAMPLE_S = 2  # for the bound only; one takes about 0.1 s


def run(
    theme: Theme, examples: int, *, derandomize: bool = True, phases: tuple[Phase, ...] = (Phase.generate,)
) -> None:
    run_state_machine_as_test(
        machine(theme),
        settings=settings(
            max_examples=examples, stateful_step_count=STEPS, derandomize=derandomize, phases=phases, deadline=None,
            database=None, print_blob=False, suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.parametrize("theme", THEMES)
def test_no_life_of_the_gateway_breaks_a_promise(theme: Theme) -> None:
    run(theme, 20)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", BROKEN)
def test_a_gateway_with_this_broken_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    breaking, promise, theme = BROKEN[name]
    breaking(monkeypatch)

    with pytest.raises(Broken) as caught:
        run(theme, 1000)

    assert caught.value.promise is promise


def test_every_promise_has_a_gateway_that_breaks_it() -> None:
    assert {promise for _, promise, _ in BROKEN.values()} == set(Promise)


@pytest.mark.proof
@pytest.mark.timeout(EXAMPLES * EXAMPLE_S)
@pytest.mark.parametrize("theme", THEMES)
def test_thousands_of_lives_break_no_promise(theme: Theme) -> None:
    run(theme, EXAMPLES, derandomize=False, phases=(Phase.generate, Phase.shrink))
