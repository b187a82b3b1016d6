"""The books over the daemon's socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermix.protocol.methods import Code
from tests.daemon.house import opened


@pytest.mark.parametrize("wish", [{}, {"days": 1}, {"days": 3_660}, {"month": True}])
async def test_empty_books_are_a_report(tmp_path: Path, wish: dict[str, object]) -> None:
    async with opened(tmp_path) as house:
        answer = (await (await house.dial()).request("usage", wish))["result"]

    assert (answer["rows"], answer["limits"], answer["today"]["usd"]) == ([], [], 0)


@pytest.mark.parametrize("wish", [{"days": 0}, {"days": 3_661}, {"days": 1, "month": True}, {"weeks": 1}])
async def test_a_wish_that_means_nothing_is_refused(tmp_path: Path, wish: dict[str, object]) -> None:
    async with opened(tmp_path) as house:
        answer = await (await house.dial()).request("usage", wish)

    assert answer["error"]["code"] == Code.INVALID_PARAMS
