"""`/usage` in a chat: the owner's only, and it tells what was booked."""

from __future__ import annotations

from pathlib import Path

from fermix.agent.budget import Call, Price
from fermix.agent.model import Usage
from tests.gateway.whole import whole_in


async def test_usage_is_told_to_the_owner_alone(tmp_path: Path) -> None:
    async with whole_in(tmp_path, []) as whole:
        booking = whole.budget.reserve(Call("p", "m", "turn", "t1", None, 10, 100, None, Price(1_000, 1_000)))
        booking.settle("answered", Usage(900, 100), estimated=False)
        for id, sender in (("m1", "1"), ("m2", "2")):
            await whole.say("/usage", id, sender=sender)
            await whole.settled(1)
        told = whole.platform.texts()

    assert "today: $1.00, 1,000 tokens" in told[0]
    assert "p/m turn: $1.00, 1 call, 900 in, 100 out" in told[0]
    assert told[1] == "/usage is for the owner of this agent."
