"""The books: what is booked, what limits refuse, what a restart finds."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from fermix.agent.budget import Budget, BudgetReached, BudgetSettings, Price, PriceUnknown, TurnRef, report
from fermix.agent.budget.settings import PriceSettings
from fermix.agent.model import Usage
from fermix.agent.sentences import OWNER_NEEDED, sentence_for
from fermix.store import Database
from fermix.trust import Trust
from tests.agent.budget.world import DEAR, KEY, SetClock, call, opened, rows

ROOT = Path(__file__).parents[3]
NOON = "2026-12-01T11:00:00+00:00"


async def test_a_call_is_booked_with_tokens_money_and_who_paid(tmp_path: Path) -> None:
    async with opened(tmp_path, SetClock(NOON)) as (budget, database):
        booking = budget.reserve(call(price=Price(1.0, 10.0, 0.1)))
        while_it_runs = await rows(database, "outcome, held_input, held_output, held_money")
        booking.settle("answered", Usage(1_000, 100, 600), estimated=False)
        after = await rows(
            database,
            "day, purpose, provider, model, channel, chat_id, turn_id, outcome, input_tokens, cached_tokens,"
            " output_tokens, money, estimated",
        )

    assert while_it_runs == [("open", 1_000, 2_000, 21_000)]
    assert after == [
        ("2026-12-01", "turn", "p", "m", "telegram", "42", "t1", "answered", 1_000, 600, 100, 400 + 60 + 1_000, 0)
    ]
    assert booking.answer_tokens is None


async def test_what_is_free_is_booked_and_never_limited(tmp_path: Path) -> None:
    settings = BudgetSettings(day_usd=0, day_tokens=0)
    async with opened(tmp_path, SetClock(NOON), settings) as (budget, database):
        budget.reserve(call(price=Price(0, 0))).settle("answered", Usage(10, 5), estimated=False)

        assert await rows(database, "input_tokens, output_tokens, money") == [(10, 5, 0)]
        assert budget.spent()[0].spent.tokens == 0


async def test_a_refusal_says_what_is_used_when_it_resets_and_how_to_raise_it(tmp_path: Path) -> None:
    async with opened(tmp_path, SetClock(NOON), BudgetSettings(day_usd=0.05)) as (budget, database):
        budget.reserve(call()).settle("answered", Usage(1_000, 2_000), estimated=False)
        budget.reserve(call())
        with pytest.raises(BudgetReached) as refused:
            budget.reserve(call())
        booked = await rows(database, "id")

    assert sentence_for(refused.value) == (
        "I did not ask p/m: the limit of $0.05 for a day leaves no room for this call. Used today: $0.02, and calls "
        "that run now hold $0.02. It begins anew on 2026-12-02 at 00:00 (Europe/Berlin). To raise it, change day_usd "
        "in [budget] of config.toml, then `fermix stop` and `fermix start`; `fermix usage` shows more."
    )
    guest = sentence_for(refused.value, Trust.GUEST)
    assert guest == "I have done as much as I may for today. Please ask again tomorrow."
    assert len(booked) == 2


async def test_a_limit_shortens_the_answer_before_it_refuses(tmp_path: Path) -> None:
    async with opened(tmp_path, SetClock(NOON), BudgetSettings(day_tokens=5_000)) as (budget, _):
        first = budget.reserve(call(1_000, answer=None))
        first.settle("answered", Usage(1_000, 500), estimated=False)
        second = budget.reserve(call(1_000, answer=2_000))

        assert (first.answer_tokens, second.answer_tokens) == (4_000, 2_000)
        with pytest.raises(BudgetReached):
            budget.reserve(call(1_000))


@pytest.mark.parametrize(
    ("limit", "price"), [("turn_usd", DEAR), ("turn_tokens", DEAR), ("turn_tokens", None)], ids=str
)
async def test_a_turn_has_its_own_limit(tmp_path: Path, limit: str, price: Price | None) -> None:
    settings = BudgetSettings.model_validate({limit: 0.03 if limit == "turn_usd" else 4_000})
    async with opened(tmp_path, SetClock(NOON), settings) as (budget, _):
        budget.reserve(call(turn="a", price=price)).settle("answered", Usage(1_000, 2_000), estimated=False)
        with pytest.raises(BudgetReached) as refused:
            budget.reserve(call(turn="a", price=price))
        budget.reserve(call(turn="b", price=price))

    assert "The next message begins anew." in sentence_for(refused.value)


async def test_an_unknown_price_is_refused_under_a_limit_in_money_until_the_owner_states_one(tmp_path: Path) -> None:
    """Not silently free: tokens may be limited instead, or the price be written down."""
    async with opened(tmp_path, SetClock(NOON), BudgetSettings(month_usd=1.0)) as (budget, database):
        with pytest.raises(PriceUnknown) as refused:
            budget.reserve(call(price=None))
        stated = BudgetSettings(month_usd=1.0, prices={"p/m": PriceSettings(input=2.0, output=3.0)})
        budget.use(stated, None)
        budget.reserve(call(price=None)).settle("answered", Usage(10, 10), estimated=False)
        budget.use(BudgetSettings(month_tokens=10_000), None)
        budget.reserve(call(price=None)).settle("answered", Usage(10, 10), estimated=False)
        booked = await rows(database, "money")

    assert '[budget.prices."p/m"]' in sentence_for(refused.value)
    assert sentence_for(refused.value, Trust.GUEST) == OWNER_NEEDED
    assert booked == [(50,), (None,)]


async def test_new_limits_count_at_once_and_see_what_is_used_and_held(tmp_path: Path) -> None:
    async with opened(tmp_path, SetClock(NOON)) as (budget, _):
        running = budget.reserve(call())
        budget.use(BudgetSettings(day_usd=0.03), None)
        with pytest.raises(BudgetReached):
            budget.reserve(call())
        running.settle("cancelled", Usage(1_000, 0), estimated=True)
        budget.reserve(call())
        budget.use(BudgetSettings(), None)
        budget.reserve(call())


async def test_background_work_stops_while_a_turn_still_goes(tmp_path: Path) -> None:
    """CST-01: the daily budget stops background work first."""
    async with opened(tmp_path, SetClock(NOON), BudgetSettings(day_tokens=10_000)) as (budget, _):
        budget.reserve(call()).settle("answered", Usage(6_000, 1_000), estimated=False)
        with pytest.raises(BudgetReached, match="day_tokens"):
            budget.reserve(call(1_000, purpose="compaction"))
        budget.reserve(call(1_000))


@pytest.mark.parametrize(
    ("before", "after", "unit"),
    [
        ("2026-12-01T22:59:59+00:00", "2026-12-01T23:00:00+00:00", "day"),  # Berlin is one hour ahead in winter
        ("2026-07-01T21:59:59+00:00", "2026-07-01T22:00:00+00:00", "day"),  # and two in summer
        ("2026-03-28T22:59:59+00:00", "2026-03-28T23:00:00+00:00", "day"),  # the day of 23 hours begins
        ("2026-03-29T21:59:59+00:00", "2026-03-29T22:00:00+00:00", "day"),  # and ends
        ("2026-10-24T21:59:59+00:00", "2026-10-24T22:00:00+00:00", "day"),  # the day of 25 hours begins
        ("2026-10-25T22:59:59+00:00", "2026-10-25T23:00:00+00:00", "day"),  # and ends
        ("2026-10-31T22:59:59+00:00", "2026-10-31T23:00:00+00:00", "month"),
        ("2026-12-31T22:59:59+00:00", "2026-12-31T23:00:00+00:00", "month"),
    ],
)
async def test_a_limit_begins_anew_at_the_owners_midnight(tmp_path: Path, before: str, after: str, unit: str) -> None:
    clock = SetClock(before)
    async with opened(tmp_path, clock, BudgetSettings.model_validate({f"{unit}_usd": 0.03})) as (budget, _):
        late = budget.reserve(call())
        with pytest.raises(BudgetReached):
            budget.reserve(call())
        clock.set(after)
        late.settle("answered", Usage(1_000, 2_000), estimated=False)  # counts where it was held
        budget.reserve(call())


@pytest.mark.parametrize("at", ["2026-03-29T00:59:00+00:00", "2026-10-25T00:30:00+00:00", "2026-10-25T01:30:00+00:00"])
async def test_the_hours_that_a_change_of_time_skips_or_repeats_belong_to_their_day(tmp_path: Path, at: str) -> None:
    clock = SetClock(at)
    async with opened(tmp_path, clock) as (budget, database):
        budget.reserve(call())

        assert await rows(database, "day") == [(at[:10],)]


async def test_what_was_used_is_found_again_after_a_restart(tmp_path: Path) -> None:
    clock, settings = SetClock("2026-11-30T12:00:00+00:00"), BudgetSettings(day_usd=0.02, month_usd=0.05)
    async with opened(tmp_path, clock, settings) as (budget, _):
        budget.reserve(call()).settle("answered", Usage(1_000, 1_000), estimated=False)
    async with opened(tmp_path, clock, settings) as (budget, database):
        with pytest.raises(BudgetReached):
            budget.reserve(call())
        clock.set("2026-12-01T12:00:00+00:00")
        budget.reserve(call())

        assert budget.spent()[1].spent.money == 0
        assert await rows(database, "id") == [(1,), (2,)]


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.agent.budget.world import SetClock, call, opened

async def main():
    async with opened(Path(sys.argv[1]), SetClock(sys.argv[2])) as (budget, database):
        budget.reserve(call())
        await database.run(lambda _: None)
        print("held", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_a_call_that_kill_9_interrupted_counts_as_what_it_held(tmp_path: Path) -> None:
    """CST-01, and the issue: never lost silently."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), NOON]
    async with asyncio.timeout(30):
        child = await asyncio.create_subprocess_exec(  # noqa: TID251 - of the test, not of the product
            *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        told, _ = await child.communicate()
    assert (child.returncode, told) == (-signal.SIGKILL, b"held\n")

    async with opened(tmp_path, SetClock(NOON), BudgetSettings(day_usd=0.03)) as (budget, database):
        assert await rows(database, "outcome, input_tokens, output_tokens, money, estimated") == [
            ("lost", 1_000, 2_000, 21_000, 1)
        ]
        with pytest.raises(BudgetReached):
            budget.reserve(call())


async def test_a_call_is_whole_on_disk_even_if_its_beginning_was_not_written(tmp_path: Path) -> None:
    async with opened(tmp_path, SetClock(NOON)) as (budget, database):
        booking = budget.reserve(call())
        await database.run(lambda connection: connection.execute("DELETE FROM usage"))
        booking.settle("failed", Usage(7, 0), estimated=False)

        assert await rows(database, "outcome, input_tokens, held_money") == [("failed", 7, 21_000)]


async def test_the_report_sums_by_day_model_and_purpose_and_shows_the_limits(tmp_path: Path) -> None:
    clock = SetClock("2026-11-30T12:00:00+00:00")
    async with opened(tmp_path, clock, BudgetSettings(day_usd=1.0, turn_tokens=50_000)) as (budget, _):
        budget.reserve(call()).settle("answered", Usage(100, 10), estimated=False)
        clock.set(NOON)
        for _ in range(2):
            budget.reserve(call()).settle("answered", Usage(100, 10, 50), estimated=False)
        budget.reserve(call(purpose="compaction", model="n")).settle("cancelled", Usage(5, 0), estimated=True)
        budget.reserve(call())
        month, week = await report(budget), await report(budget, days=7)

    assert [(row["day"], row["model"], row["purpose"], row["calls"]) for row in week["rows"]] == [
        ("2026-12-01", "p/m", "turn", 2),
        ("2026-12-01", "p/n", "compaction", 1),
        ("2026-11-30", "p/m", "turn", 1),
    ]
    assert week["rows"][0]["usd"] == pytest.approx(0.0004)
    assert (week["rows"][0]["cached_tokens"], week["rows"][1]["estimated"]) == (100, 1)
    assert (month["since"], len(month["rows"])) == ("2026-12-01", 2)
    assert week["today"]["held_usd"] == pytest.approx(0.021)
    assert week["limits"] == [
        {"limit": "turn_tokens", "allowed": 50_000, "used": None, "held": None, "begins_anew": None},
        {
            "limit": "day_usd",
            "allowed": 1.0,
            "used": pytest.approx(0.000405),
            "held": pytest.approx(0.021),
            "begins_anew": "2026-12-02",
        },
    ]


async def test_what_counts_no_tokens_is_booked_without_money(tmp_path: Path) -> None:
    """A hosted service that hears or paints: seen in the books, and no limit can hold it."""
    async with opened(tmp_path, SetClock(NOON), BudgetSettings(day_usd=0)) as (budget, database):
        budget.note("deepgram", "nova-3", "voice")
        budget.note("openai", "gpt-image-1", "image", turn=TurnRef("t9", KEY))
        booked = await rows(database, "purpose, model, turn_id, chat_id, outcome, money, input_tokens")
        told = await report(budget, days=1)

    assert booked == [
        ("voice", "nova-3", "", None, "answered", None, 0),
        ("image", "gpt-image-1", "t9", "42", "answered", None, 0),
    ]
    assert {row["unpriced"] for row in told["rows"]} == {1}


async def test_a_full_disk_neither_delays_nor_hides_what_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, SetClock(NOON), BudgetSettings(day_usd=0.03)) as (budget, database):
        monkeypatch.setattr(Database, "post", lambda _self, _fn: None)
        budget.reserve(call()).settle("answered", Usage(1_000, 2_000), estimated=False)

        assert await rows(database, "id") == []
        with pytest.raises(BudgetReached):
            budget.reserve(call())


def test_a_budget_before_its_file_is_read_has_no_limit() -> None:
    assert Budget(None, SetClock(NOON)).limits() == []  # type: ignore[arg-type]
