"""A hundred thousand calls of the tools, the opener and the sandbox, by the judges that the short tests use too."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.agent.sandbox.paths import run_seeds
from tests.judges.arguments import benched, try_one
from tests.judges.paths import check_path, lay_out

pytestmark = [pytest.mark.proof, pytest.mark.timeout(7_200)]

MANY, PART, SEED = 100_000, 1_000, 20_261_130


async def test_any_arguments_get_one_result_and_touch_nothing_closed(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        for number in range(MANY):
            await try_one(bench, Random(SEED + number))
            if number % PART == 0:
                bench.check()
        bench.check()


def test_whatever_opens_lies_below_and_no_link_was_followed(tmp_path: Path) -> None:
    root = lay_out(tmp_path)
    for number in range(MANY):
        check_path(root, Random(SEED + number))


def test_the_sandbox_means_what_the_model_says(tmp_path: Path) -> None:
    run_seeds(tmp_path, SEED, MANY)
