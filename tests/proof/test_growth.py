"""Thousands of turns in hundreds of conversations: memory, descriptors and processes stay where they were."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.program import ask, proportional_bytes, told
from fermix.protocol.ask import Connection
from tests.flows.product import compatible, running, scripted

pytestmark = [pytest.mark.proof, pytest.mark.timeout(3_600)]

TURNS = int(os.environ.get("FERMIX_PROOF_TURNS", "6000"))
CONVERSATIONS = 300
MOST_GROWTH_BYTES = 4 * 2**20


def test_the_second_half_of_many_turns_costs_no_more_memory_than_the_first(tmp_path: Path) -> None:
    """SVC-10 and QUE-09."""
    with scripted(tmp_path, [{"text": "Fine."}]) as url, running(tmp_path, compatible(url)) as product:
        connection = Connection(str(product.home / "daemon.sock"), client="proof")
        connection.request("events.subscribe", {"sessions": None, "services": False})
        _turns(connection, 0, TURNS // 2)
        half, open_at_half = proportional_bytes(connection), told(connection, "open_files")
        _turns(connection, TURNS // 2, TURNS)

        assert proportional_bytes(connection) - half <= MOST_GROWTH_BYTES
        assert told(connection, "open_files") <= open_at_half + 2
        connection.close()


def _turns(connection: Connection, begin: int, end: int) -> None:
    for number in range(begin, end):
        ask(connection, f"s{number % CONVERSATIONS}", f"question {number}")
