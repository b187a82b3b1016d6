"""From the store to the wire: whatever a turn left behind, no later request is refused for it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fermix.agent.memory.history import sendable
from fermix.agent.memory.rows import Row, decode, encode
from fermix.agent.model import ChatRequest, UserMessage
from tests.agent.memory.items import histories
from tests.contracts.test_provider_histories import WIRES, send


@pytest.mark.parametrize("wire", WIRES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(batch=st.lists(st.tuples(histories, st.integers(0, 10)), min_size=1, max_size=3))
def test_any_stored_history_is_accepted_at_any_cut(wire: str, batch: list[tuple[list[Row], int]]) -> None:
    """CTX-01, CTX-02, PRV-09: stored, read back, cut anywhere, sent with the next question."""
    requests: list[ChatRequest] = []
    for rows, cut in batch:
        restored = [decode(encode(row)) for row in rows[cut:]]
        requests.append(ChatRequest((), (*sendable(restored), UserMessage("and now?"))))

    refusals, completions = asyncio.run(send(wire, *requests))

    assert (refusals, len(completions)) == ([], len(batch))
