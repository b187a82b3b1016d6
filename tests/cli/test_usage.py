"""`fermix usage` without a daemon, over the real file."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fermix.agent.budget import BudgetSettings, Price
from fermix.agent.model import Usage
from fermix.cli.main import main
from fermix.home import Home
from tests.agent.budget.world import SetClock, call, opened


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = Home(tmp_path / "home")
    home.prepare()
    monkeypatch.setenv("FERMIX_HOME", str(home.root))
    return home


async def _fill(home: Home) -> None:
    now = datetime.now(UTC).isoformat()
    async with opened(home.root, SetClock(now), BudgetSettings(), "UTC") as (budget, _):
        budget.reserve(call(model="\u202em")).settle("answered", Usage(1_000, 2_000, 10), estimated=False)
        budget.reserve(call(price=None, model="n")).settle("cancelled", Usage(1_000, 0), estimated=True)


def test_usage_is_told_by_day_model_and_purpose(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.config.write_text(
        '[fermix_core.personalization]\ntimezone = "UTC"\n[budget]\nday_usd = 5\nmonth_tokens = 9000\n',
        encoding="utf-8",
    )
    asyncio.run(_fill(home))

    assert main(["usage", "--days", "2"]) == 0
    told = capsys.readouterr().out
    assert main(["usage", "--month", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)

    assert "today: $0.02, 4,000 tokens" in told
    assert "limit day_usd: $0.02 of $5.00, anew on " in told
    assert "limit month_tokens: 4,000 tokens of 9,000 tokens, anew on " in told
    assert "  p/⟨U+202E⟩m turn: $0.02, 1 call, 1,000 (10 cached) in, 2,000 out" in told
    assert "  p/n turn: price unknown~, 1 call, 1,000 in, 0 out\n~ in part by estimate" in told
    assert [row["usd"] for row in report["rows"]] == [0.021, 0]


def test_the_totals_say_what_they_leave_out(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    """A local model's tokens stood in the rows and not in the totals, and nothing said why."""
    told = "What costs nothing is listed, and neither counted above nor limited.\n"
    asyncio.run(_fill(home))
    assert main(["usage"]) == 0
    assert told not in capsys.readouterr().out

    asyncio.run(_ask_for_nothing(home))
    assert main(["usage"]) == 0
    assert capsys.readouterr().out.endswith(told)


async def _ask_for_nothing(home: Home) -> None:
    async with opened(home.root, SetClock(datetime.now(UTC).isoformat()), BudgetSettings(), "UTC") as (budget, _):
        budget.reserve(call(price=Price(0, 0), model="own")).settle("answered", Usage(10, 5), estimated=False)


def test_empty_books_say_how_to_set_a_limit(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage"]) == 0

    assert "no limit is set; [budget] in config.toml takes day_usd" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--days", "0"], ["--days", "99999"]])
def test_wrong_days_are_wrong_use(home: Home, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["usage", *words]) != 0
    assert "days takes 1 to 3660" in capsys.readouterr().err


def test_a_wrong_limit_is_named_with_its_line(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    home.config.write_text('[budget]\nday_usd = -1\n[budget.prices."a/b"]\ninput = 1.0\n', encoding="utf-8")

    assert main(["usage"]) == 1
    assert "budget" in capsys.readouterr().err
