"""Conversations whose names look alike stay apart, wherever the gateway keeps something by their key."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.message import ConversationKey, Message
from fermix.trust import Trust
from tests.fakes.channel import FakeAgent, completed, message
from tests.gateway.conftest import Install

PARTS = st.text("ab_:/|\\.-\0 é\u0301", min_size=1, max_size=4).filter(str.strip)
KEYS = st.lists(st.tuples(PARTS, PARTS), min_size=2, max_size=12, unique=True)
ALIKE = [
    ("a_b", "c"),
    ("a", "b_c"),
    ("a:b", "c"),
    ("a", "b:c"),
    ("a/b", "c"),
    ("a\0b", "c"),
    ("é", "a"),
    ("e\u0301", "a"),
]


def _messages(keys: list[tuple[str, str]]) -> list[Message]:
    return [
        message("hi", id=f"m{number}", chat=chat, thread=thread, channel="chat", sender="1")
        for number, (chat, thread) in enumerate(keys)
    ]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=KEYS)
@example(keys=ALIKE)
def test_no_two_conversations_share_a_lane(
    tmp_path_factory: pytest.TempPathFactory, keys: list[tuple[str, str]]
) -> None:
    """QUE-05: all of them run at once, and each answer goes to its own."""

    async def play() -> None:
        install = Install(tmp_path_factory.mktemp("keys") / "memory.db")
        together = asyncio.Barrier(len(keys))

        async def meets(turn: Turn, port: ReplyPort) -> TurnOutcome:
            async with asyncio.timeout(5):
                await together.wait()
            return completed(turn.message.id)

        async with install.start(FakeAgent(meets)) as life:
            for said in _messages(keys):
                await life.gateway.ingest(said, life.channel)
            assert len(life.gateway.lanes._lanes) == len(keys)
            assert {outcome for _, outcome in await life.settled(len(keys))} == {"completed"}
        for number, (chat, thread) in enumerate(keys):
            assert install.platform.texts(chat, thread) == [f"m{number}"]

    asyncio.run(play())


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=KEYS)
@example(keys=ALIKE)
def test_a_restart_finds_each_conversation_under_its_own_key(
    tmp_path_factory: pytest.TempPathFactory, keys: list[tuple[str, str]]
) -> None:
    """QUE-05: what is written down is the key itself, whatever its characters."""

    async def play() -> None:
        install = Install(tmp_path_factory.mktemp("keys") / "memory.db")
        async with install.ledger() as ledger:
            for said in _messages(keys):
                await ledger.accept(said, Trust.GUEST)
        async with install.ledger() as ledger:
            found = [one.message.key for one in await ledger.unfinished()]
        assert found == [ConversationKey("chat", chat, thread) for chat, thread in keys]

    asyncio.run(play())
