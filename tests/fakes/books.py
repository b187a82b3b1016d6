"""Books that allow every call and remember what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from fermix.agent.budget import Call, Outcome, TurnRef, Unmetered
from fermix.agent.model import Usage

NO_TURN = TurnRef()


@dataclass
class Booked:
    call: Call
    answer_tokens: int | None
    settled: list[tuple[Outcome, Usage, bool]] = field(default_factory=list[tuple[Outcome, Usage, bool]])

    def settle(self, outcome: Outcome, usage: Usage, *, estimated: bool) -> None:
        self.settled.append((outcome, usage, estimated))


@dataclass
class FakeBooks:
    """`answer_tokens` bounds every answer; a `refusal` is raised instead of a booking."""

    answer_tokens: int | None = None
    refusal: Exception | None = None
    booked: list[Booked] = field(default_factory=list[Booked])
    noted: list[tuple[str, str, Unmetered, str]] = field(default_factory=list[tuple[str, str, Unmetered, str]])

    def reserve(self, call: Call) -> Booked:
        if self.refusal is not None:
            raise self.refusal
        self.booked.append(Booked(call, self.answer_tokens))
        return self.booked[-1]

    def note(self, provider: str, model: str, purpose: Unmetered, *, turn: TurnRef = NO_TURN) -> None:
        self.noted.append((provider, model, purpose, turn.id))

    @property
    def settled(self) -> list[tuple[str, Outcome, Usage, bool]]:
        """Provider, outcome, usage, estimated: one line per settling."""
        return [(one.call.provider, *end) for one in self.booked for end in one.settled]
