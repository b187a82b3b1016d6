"""Two thousand paths; a hundred thousand: tests/proof/test_fuzz_tools.py."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.judges.paths import check_path, lay_out

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="what opened is read from /proc")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("paths"))


@settings(max_examples=2_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)
@given(random=st.randoms(use_true_random=False))
def test_whatever_opens_lies_below_and_no_link_was_followed(root: Path, random: Random) -> None:
    """SBX-01, SBX-02, R-29."""
    check_path(root, random)


def test_the_judge_sees_a_link_that_is_followed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must be able to fail: an opener that asks the kernel for nothing."""
    monkeypatch.setattr("fermix.native.opener.RESOLVE", 0)
    seen = 0
    for seed in range(500):
        try:
            check_path(root, Random(seed))
        except AssertionError:
            seen += 1

    assert seen > 0
