"""The work of one turn in its lane: run, deliver, commit, settle.

A stop ends the run and lets no further send begin; a reply on the wire is finished and recorded. When the daemon goes,
an unfinished turn is left as it stands: it is unfinished in the ledger too, and the next start takes it up. Whatever
breaks here, the message gets its last word and the lane goes on.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Literal, Protocol, assert_never

from fermix.agent.compaction.compactor import Compacted
from fermix.agent.model import Usage
from fermix.agent.turn import Cancelled, Completed, Failed, ReplyPort, Turn, TurnOutcome
from fermix.clock import Clock
from fermix.events import Events, MessageSettled
from fermix.gateway.ledger import Entry, Ledger, Outcome
from fermix.gateway.replies import Replier, past_failing
from fermix.message import ConversationKey

log = logging.getLogger(__name__)

BROKEN = "Something went wrong on my side; the log has the details. Please try again."
UNDELIVERED = "The reply could not be delivered."
UNWRITTEN = "The answer could not be written down, so it was not sent. The next start takes it up."


class Agent(Protocol):
    """What answers. `run` never raises but for cancellation; `commit` or `abandon` follows each run. `restore` stores
    the answer of an earlier process that was delivered.
    """

    async def run(self, turn: Turn, port: ReplyPort) -> TurnOutcome: ...

    async def commit(self, turn: Turn, outcome: Completed) -> None: ...

    async def abandon(self, turn: Turn, outcome: Cancelled | Failed) -> None: ...

    async def restore(self, turn: Turn, text: str, model: str) -> None: ...

    async def compact(self, key: ConversationKey) -> Compacted: ...


@dataclass(frozen=True, slots=True)
class TurnServices:
    """What every turn in a lane uses."""

    agent: Agent
    ledger: Ledger
    events: Events
    clock: Clock


class Answer:
    """One turn on its way. `Work` of a lane."""

    def __init__(self, services: TurnServices, turn: Turn, entry: Entry, replier: Replier) -> None:
        self._services = services
        self._turn = turn
        self._entry = entry
        self._replier = replier
        self._running: asyncio.Task[TurnOutcome] | None = None
        self._ending: Literal["", "stop", "leave"] = ""

    async def run(self) -> None:
        started = self._services.clock.monotonic()
        self._services.ledger.begin(self._entry)
        try:
            async with self._replier.answering():
                settled = await self._settled(await self._outcome())
        except Exception as error:
            log.exception("what surrounds a turn broke")
            settled = await self._settled(Failed(BROKEN, repr(error)))
        if settled is None and self._ending != "leave":
            settled = Failed(UNWRITTEN, "the ledger cannot be written")
        if settled is not None:
            self._tell(settled, self._services.clock.monotonic() - started)

    def stop(self) -> None:
        self._services.ledger.stop(self._entry)
        self._replier.stop()
        if not self._ending:  # a second stop must not cut off what the first one lets the turn tidy up
            self._end("stop")

    def leave(self) -> None:
        self._replier.leave()
        self._end("leave")

    def drop(self) -> None:
        self._services.ledger.settle(self._entry, "stopped")
        self._tell(Cancelled(), 0.0)

    def _end(self, ending: Literal["stop", "leave"]) -> None:
        self._ending = ending
        if self._running is not None:
            self._running.cancel()

    async def _outcome(self) -> TurnOutcome:
        async with asyncio.TaskGroup() as group:
            self._running = group.create_task(self._guarded(), name=f"turn {self._turn.id}")
            if self._ending:
                self._running.cancel()
        task, self._running = self._running, None
        return Cancelled() if task.cancelled() else task.result()

    async def _guarded(self) -> TurnOutcome:
        try:
            return await self._services.agent.run(self._turn, self._replier)
        except Exception as error:
            log.exception("a turn broke")
            return Failed(BROKEN, repr(error))

    async def _settled(self, outcome: TurnOutcome) -> TurnOutcome | None:
        """Deliver, commit and settle; returns the outcome as it stands afterwards, None when the daemon goes first."""
        match outcome:
            case Completed():
                return await self._deliver(outcome)
            case Failed():
                if await self._replier.tell(outcome.user_text, "failed") == "left":
                    return None
                return await self._abandon(outcome, "failed")
            case Cancelled():
                return None if self._ending == "leave" else await self._abandon(outcome, "stopped")
            case _:
                assert_never(outcome)

    async def _deliver(self, outcome: Completed) -> TurnOutcome | None:
        match await self._replier.answer(outcome.text, outcome.model):
            case "sent":
                await past_failing(self._services.agent.commit(self._turn, outcome), "storing an answer")
                self._services.ledger.settle(self._entry, "answered")
                return outcome
            case "failed":
                return await self._abandon(Failed(UNDELIVERED, "delivery failed"), "answered")
            case "stopped":
                return await self._abandon(Cancelled(), "stopped")
            case "left":
                return None

    async def _abandon(self, outcome: Cancelled | Failed, settles: Outcome) -> TurnOutcome:
        await past_failing(self._replier.abandon(), "taking back a draft")
        await past_failing(self._services.agent.abandon(self._turn, outcome), "closing a turn in the history")
        self._services.ledger.settle(self._entry, settles)
        return outcome

    def _tell(self, settled: TurnOutcome, duration_s: float) -> None:
        usage = settled.usage if isinstance(settled, Completed) else Usage()
        key, message_id = self._turn.key, self._turn.message.id
        error = settled.user_text if isinstance(settled, Failed) else ""
        self._services.events.emit(
            MessageSettled(key, message_id, _kind(settled), duration_s, error, usage.input_tokens, usage.output_tokens)
        )


def _kind(outcome: TurnOutcome) -> Literal["completed", "cancelled", "failed"]:
    match outcome:
        case Completed():
            return "completed"
        case Cancelled():
            return "cancelled"
        case Failed():
            return "failed"
        case _:
            assert_never(outcome)
