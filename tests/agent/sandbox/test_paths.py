"""Paths of any kind, against a simple model of what they mean."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agent.sandbox.paths import Case, Model, Node, World, make_case, run_case, run_race, run_seeds


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        yield World(Path(folder))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    return make_case(lambda below: draw(st.integers(0, below - 1)))


@pytest.mark.slow
@settings(max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases())
def test_every_path_means_what_the_model_says(world: World, case: Case) -> None:
    """R-29 to R-31: what is opened or written is what a plain reading of the links says, or nothing."""
    run_case(world, case)


def test_a_few_hundred_paths_mean_what_the_model_says(tmp_path: Path) -> None:
    run_seeds(tmp_path, seed=7, cases=300)


@pytest.mark.slow
def test_whoever_swaps_folders_gains_nothing(world: World) -> None:
    numbers = iter(range(1_000_000))
    for _ in range(20):
        run_race(world, lambda below: next(numbers) * 7 % below)


def test_the_model_itself_knows_links_and_dots(world: World) -> None:
    nodes = (
        Node(("a",)), Node(("a", "f"), b"text"), Node(("up",), target=".."), Node(("l",), target="a/f"),
        Node(("loop",), target="loop"), Node(("out",), target="OUT/a"),
    )  # fmt: skip
    model = Model(world, nodes)
    texts = ("a/f", "l", "a/../l", "up/workspace/l", "loop", "out", "a", "gone", "../auth.json")

    seen = [model.expected(Case(nodes, text, None)) for text in texts]

    assert seen == [b"text"] * 4 + [None] * 5


def test_a_broken_opener_is_noticed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases can fail: one that follows the last link would read what lies outside."""
    monkeypatch.setattr(World, "do", lambda self, case: (self.outside / "a").read_bytes())

    with pytest.raises(AssertionError):
        run_case(world, Case((Node(("a",), target="OUT/a"),), "a", None))


def test_a_ring_of_links_is_no_place_even_behind_a_name_that_is_not_there(world: World) -> None:
    """Found by a hundred thousand cases: it was taken for a new folder beside it."""
    run_case(world, Case((Node(("a",), target="a/./../new/."),), "new/../a/c", b"written"))
