"""How long `fermix ask` waits. What it says and does is shown by `tests/flows/test_ask.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fermix.cli.answer import Answer, Printer
from fermix.cli.verbs import ask

Event = tuple[str, dict[str, object]]
DOWNLOAD: Event = ("download", {"name": "model", "done_bytes": 1, "total_bytes": 2, "state": "running"})
DELTA: Event = ("turn.delta", {"session": "cli", "message_id": "m1", "kind": "reasoning", "text": "hm"})
ENDED: Event = ("turn.ended", {"session": "cli", "message_id": "m1", "outcome": "completed", "error": ""})


class Slow:
    """A connection on which each event takes four seconds of the patched clock."""

    def __init__(self, *events: Event) -> None:
        self.now_s = 0.0
        self._events = iter(events)  # each call goes on where the last one stopped

    def events(self) -> Iterator[Event]:
        for event in self._events:
            self.now_s += 4.0
            yield event

    def wait_s(self, seconds: float | None) -> None:
        """The clock decides here."""


def follow(monkeypatch: pytest.MonkeyPatch, *events: Event) -> Answer:
    slow = Slow(*events)
    monkeypatch.setattr(ask.time, "monotonic", lambda: slow.now_s)
    return ask._follow(slow, Printer(as_json=True, stream=False), Answer("m1", "cli"), 10.0)


def test_a_running_download_does_not_count_against_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first question may bring half a gigabyte along."""
    assert follow(monkeypatch, *[DOWNLOAD] * 20, DELTA, ENDED).ok


def test_news_of_the_turn_do_not_lengthen_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TimeoutError):
        follow(monkeypatch, *[DELTA] * 20, ENDED)
