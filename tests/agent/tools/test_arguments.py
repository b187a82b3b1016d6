"""Two thousand calls with arguments that nobody expects; a hundred thousand: tests/proof/test_fuzz_tools.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fermix.trust import Trust
from tests.judges.arguments import SECRET, Bench, benched, try_one


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Bench]]:
    with asyncio.Runner() as runner:
        context = benched(tmp_path_factory.mktemp("bench"))
        yield runner, runner.run(context.__aenter__())
        runner.run(context.__aexit__(None, None, None))


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(random=st.randoms(use_true_random=False))
def test_any_arguments_get_one_result_and_touch_nothing_closed(
    bench: tuple[asyncio.Runner, Bench], random: Random
) -> None:
    """R-19, R-54: whatever a model makes up."""
    runner, one = bench
    runner.run(try_one(one, random))


def test_nothing_closed_was_touched(bench: tuple[asyncio.Runner, Bench]) -> None:
    """Looked at once, behind all of the above."""
    bench[1].check()


def test_the_judge_sees_what_it_is_there_for(tmp_path: Path) -> None:
    """It must be able to fail."""

    async def look() -> None:
        async with benched(tmp_path) as one:
            (tmp_path / "user/.fermix/workspace/stolen").write_text(SECRET, encoding="utf-8")
            with pytest.raises(AssertionError):
                await one.call("file_read", {"path": "stolen"}, Trust.OPERATOR)
            (tmp_path / "user/made").touch()
            with pytest.raises(AssertionError):
                one.check()

    asyncio.run(look())
