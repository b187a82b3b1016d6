"""What it costs the processor to book one call, beside the writes that a turn makes anyway.

Called by `turn.py`, which sets it against a whole turn. A request has as many tools and messages as there.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from bench.figures import p50
from fermix.agent.budget import Books, Budget, BudgetSettings, Call, Outcome, TurnRef, Unmetered
from fermix.agent.model import AssistantMessage, ChatMessage, ChatRequest, Completion, ToolSchema, Usage, UserMessage
from fermix.agent.providers.attempts import Attempts, Occasion
from fermix.agent.providers.provider import ModelFacts, OnDelta, Route
from fermix.clock import SystemClock
from fermix.message import ConversationKey
from fermix.store import Connection, Database

CALLS = 100
ROUNDS = 7
WORDS = "words " * 40
KEY = ConversationKey("bench", "1", "root")
NO_TURN = TurnRef()


class _Answers:
    """A provider that costs nothing to ask; it takes longer than a posted write waits for company."""

    route = Route("bench", "bench")
    facts = ModelFacts(1_000_000, 16_384, None, 1.0, 2.0)

    async def complete(self, request: ChatRequest, on_delta: OnDelta) -> Completion:
        await asyncio.sleep(0.003)
        return Completion("", (), Usage(10, 10), "stop", "bench", "bench")


class _NoBooks:
    """Books that book nothing, and their own booking."""

    answer_tokens = None

    def reserve(self, call: Call) -> _NoBooks:
        return self

    def settle(self, outcome: Outcome, usage: Usage, *, estimated: bool) -> None:
        return

    def note(self, provider: str, model: str, purpose: Unmetered, *, turn: TurnRef = NO_TURN) -> None:
        return


def cpu_s(tools: int, messages: int) -> float:
    """Return the seconds that books add to one call; with and without are measured in turn."""
    request = _request(tools, messages)
    return p50([_one(request, booked=True) - _one(request, booked=False) for _ in range(ROUNDS)])


def _one(request: ChatRequest, *, booked: bool) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measured(Path(folder), request, booked=booked))


async def _measured(folder: Path, request: ChatRequest, *, booked: bool) -> float:
    async with Database.open(folder / "memory.db") as database:
        settings = BudgetSettings(month_usd=1_000.0)
        books: Books = await Budget.open(database, SystemClock(), settings, None) if booked else _NoBooks()
        attempts, began_s = Attempts(books), time.process_time()
        for number in range(CALLS):
            database.post(_a_row)  # the question
            await attempts.make(Occasion(str(number), "turn", KEY), _Answers(), request, lambda _: None)
            await database.run(_a_row)  # the answer
        return (time.process_time() - began_s) / CALLS


def _a_row(connection: Connection) -> None:
    connection.execute(
        "INSERT INTO messages (agent_id, owner_id, channel, chat_id, sender, role, kind, content, created_at)"
        " VALUES ('a', 'b', 'c', 'd', '', 'user', 'chat_message', ?, '')",
        (WORDS,),
    )


def _request(tools: int, messages: int) -> ChatRequest:
    talk: list[ChatMessage] = [UserMessage(WORDS), AssistantMessage(WORDS)] * (messages // 2)
    schema = ToolSchema("tool", WORDS, {"type": "object", "properties": {"path": {"type": "string"}}})
    return ChatRequest((WORDS * 20,), (*talk, UserMessage(WORDS)), (schema,) * tools)
