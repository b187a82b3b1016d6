from __future__ import annotations

from fermix.agent.guard import LoopGuard, Verdict
from tests.fakes.turns import make_call


def verdicts(guard: LoopGuard, *names: str) -> list[Verdict]:
    return [guard.observe(make_call(name)) for name in names]


def test_third_repetition_in_the_window_is_remarked_on_once() -> None:
    """Reference 4, 1.5: 3 occurrences inside 10 calls warn, once per signature."""
    guard = LoopGuard()

    seen = verdicts(guard, "a", "b", "a", "c", "a", "d", "a", "e", "a")

    assert [index for index, verdict in enumerate(seen) if verdict is Verdict.WARN] == [4]
    assert Verdict.END not in seen


def test_fifth_call_in_a_row_ends_the_turn() -> None:
    """CST-03 and reference 4, 1.5: 5 consecutive identical calls are a loop."""
    assert verdicts(LoopGuard(), *"aaaaa") == [Verdict.RUN, Verdict.RUN, Verdict.WARN, Verdict.RUN, Verdict.END]


def test_interleaved_repetition_never_ends_the_turn() -> None:
    """Reference 4, 1.5: polling with something between is only warned about."""
    assert Verdict.END not in verdicts(LoopGuard(), *("ab" * 40))


def test_calls_outside_the_window_are_forgotten() -> None:
    assert Verdict.WARN not in verdicts(LoopGuard(), "a", "a", *"bcdefghij", "a")


def test_order_of_arguments_does_not_hide_a_repetition() -> None:
    guard = LoopGuard()
    pairs: list[dict[str, int]] = [{"x": 1, "y": 2}, {"y": 2, "x": 1}] * 3

    seen = [guard.observe(make_call("a", **pair)) for pair in pairs[:5]]

    assert Verdict.END is seen[-1]


def test_other_arguments_are_another_call() -> None:
    guard = LoopGuard()

    assert {Verdict.RUN} == {guard.observe(make_call("a", page=page)) for page in range(20)}
