from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fermix.agent.approvals import Approvals
from fermix.agent.budget import Budget, BudgetReached
from fermix.agent.budget.limits import Reached, Span
from fermix.agent.budget.words import GUEST
from fermix.agent.compaction.compactor import Compacted
from fermix.agent.turn import Failed, ReplyPort, RequestSize, Turn, TurnOutcome
from fermix.clock import Clock, SystemClock
from fermix.events import EventQueue, Events, MessageReceived, MessageSettled
from fermix.gateway import Access, Authorizer, Gateway, Ledger, Rooms
from fermix.gateway.commands.catalog import COMMANDS
from fermix.gateway.commands.stop import USAGE
from fermix.gateway.gateway import BROKEN
from fermix.message import ConversationKey, Message
from fermix.store import Database
from tests.fakes.channel import FakeAgent, FakeChannel, completed, message
from tests.fakes.clock import ManualClock
from tests.fakes.policy import policy_in
from tests.fakes.transcriber import media_step
from tests.requirements import covers

FIELDS = ("id", "channel", "chat_id", "reply_target", "thread")


@dataclass
class FakeConversations:
    cleared: list[ConversationKey] = field(default_factory=list)
    expected: list[int] = field(default_factory=list)
    broken: bool = False

    async def clear(self, key: ConversationKey) -> None:
        if self.broken:
            raise RuntimeError("bug")
        self.cleared.append(key)

    def expect(self, ledger_ids: Iterable[int]) -> None:
        self.expected = list(ledger_ids)


@dataclass
class House:
    gateway: Gateway
    channel: FakeChannel
    agent: FakeAgent
    conversations: FakeConversations
    news: EventQueue

    async def say(self, text: str, id: str = "m1", chat: str = "chat", sender: str | None = None) -> None:
        """Speak as the local owner, or on a chat channel as somebody there."""
        said = message(text, id=id, chat=chat)
        if sender is not None:
            said = message(text, id=id, chat=chat, channel="telegram", sender=sender)
        await self.ingest(said)

    async def ingest(self, said: Message) -> None:
        """Hand it over on its own channel; both stand before the same platform."""
        remote = FakeChannel("telegram", platform=self.channel.platform)
        await self.gateway.ingest(said, self.channel if said.channel == "cli" else remote)

    async def settled(self, count: int) -> list[MessageSettled]:
        found: list[MessageSettled] = []
        async with asyncio.timeout(5):
            while len(found) < count:
                event = (await self.news.get()).event
                if isinstance(event, MessageSettled):
                    found.append(event)
        return found


@asynccontextmanager
async def house(agent: FakeAgent | None = None, clock: Clock | None = None) -> AsyncGenerator[House]:
    clock = clock or SystemClock()
    events, agent, conversations = Events(clock), agent or FakeAgent(), FakeConversations()
    access = Authorizer(
        {
            "cli": Access(local=True),
            "telegram": Access(local=False, owner="1", listed=frozenset({"2", "3"}), commanders=frozenset({"2"})),
        }
    )
    with TemporaryDirectory() as folder, events.subscribe(100_000) as news:
        async with Database.open(Path(folder) / "memory.db") as database:
            with policy_in(Path(folder), clock) as policy:
                ledger, approvals = Ledger(database, clock), Approvals(clock)
                rooms = Rooms(
                    agent,
                    access,
                    ledger,
                    conversations,
                    policy,
                    approvals,
                    COMMANDS,
                    events,
                    clock,
                    media_step(),
                    Budget(database, clock),
                )
                async with Gateway.open(rooms) as gateway:
                    yield House(gateway, FakeChannel(), agent, conversations, news)


class Gate:
    """Holds turns until the test lets them go."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        self.entered.set()
        await self.go.wait()
        return completed(f"answer to {turn.message.text}")


@covers("ingress.single-entry", "ingress.order", "commit.after-delivery", "turn.own-task")
async def test_a_message_is_answered_delivered_and_then_committed() -> None:
    async with house() as rooms:
        await rooms.say("hello")

        assert await rooms.channel.wait_for(1) == [("m1", "HELLO")]
        assert [event.outcome for event in await rooms.settled(1)] == ["completed"]
        assert rooms.agent.committed == ["m1"]


@covers("ingress.deny.silent", "ingress.deny.no-agent", "ingress.authorize.before-agent", "ingress.deny.logged")
async def test_a_stranger_reaches_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Ingress and trust, step 2: one escaped warning, no reply, no agent, nothing stored or emitted."""
    async with house() as rooms:
        stranger = message("hi", channel="telegram", sender="evil\nid", id="x")
        with caplog.at_level(logging.WARNING):
            await rooms.ingest(stranger)

        assert rooms.news.drain() == []
        assert (rooms.channel.sent, rooms.agent.started) == ([], [])
        assert len(caplog.records) == 1
        assert "evil⟨U+000A⟩id" in caplog.text


@covers("ingress.required-fields", "ingress.invalid.dropped")
@pytest.mark.parametrize("missing", FIELDS)
@pytest.mark.parametrize("blank", ["", " \n"])
async def test_a_message_without_a_required_field_is_dropped_with_its_name(
    caplog: pytest.LogCaptureFixture, missing: str, blank: str
) -> None:
    """Ingress and trust, step 1: an error in the log that names the first field that is missing."""
    also = dict.fromkeys(FIELDS[FIELDS.index(missing) :], blank)
    async with house() as rooms:
        await rooms.gateway.ingest(replace(message("hi"), **also), rooms.channel)  # type: ignore[arg-type]

        assert (rooms.channel.sent, rooms.agent.started, rooms.news.drain()) == ([], [], [])
    assert [(record.levelname, record.args) for record in caplog.records] == [
        ("ERROR", (f"field {missing} is missing", blank if "channel" in also else "cli"))
    ]


@covers("empty.reply", "empty.no-turn", "empty.after-authorization")
async def test_a_blank_message_gets_the_sentence_and_no_turn() -> None:
    async with house() as rooms:
        await rooms.say("  \n ")

        assert await rooms.channel.wait_for(1) == [
            ("m1", "Your message looks empty — send some text or media I can read.")
        ]
        assert [event.outcome for event in await rooms.settled(1)] == ["handled"]
        assert rooms.agent.started == []


@covers("queue.fifo", "queue.one-active", "queue.key", "queue.waiting-is-kept")
async def test_messages_of_a_conversation_run_one_at_a_time_in_order() -> None:
    gate = Gate()
    async with house(FakeAgent(gate)) as rooms:
        for number in range(5):
            await rooms.say(f"q{number}", id=f"m{number}")
        await asyncio.wait_for(gate.entered.wait(), 5)

        assert rooms.agent.started == ["m0"]
        assert rooms.gateway.lanes.counts() == (1, 4)
        gate.go.set()
        assert await rooms.channel.wait_for(5) == [(f"m{n}", f"answer to q{n}") for n in range(5)]
        assert rooms.agent.most_at_once == 1


@covers("queue.independent")
async def test_conversations_run_at_the_same_time() -> None:
    gate = Gate()
    async with house(FakeAgent(gate)) as rooms:
        for chat in ("a", "b", "c"):
            await rooms.say("hi", id=chat, chat=chat)
        async with asyncio.timeout(5):
            while len(rooms.agent.started) < 3:
                await asyncio.sleep(0)

        assert sorted(rooms.agent.started) == ["a", "b", "c"]
        gate.go.set()


@covers("queue.only-stop-cancels")
async def test_stop_is_answered_at_once_and_ends_the_turn_and_what_waits() -> None:
    """QUE-01: a stop never waits behind the turn it stops."""
    gate = Gate()
    async with house(FakeAgent(gate)) as rooms:
        await rooms.say("long", id="m1")
        await rooms.say("later", id="m2")
        await asyncio.wait_for(gate.entered.wait(), 5)
        await rooms.say("/stop", id="m3")
        await rooms.channel.wait_for(1)

        assert rooms.channel.sent == [("m3", "Stopped. 1 waiting message was dropped.")]
        outcomes = {event.message_id: event.outcome for event in await rooms.settled(3)}
        assert outcomes == {"m1": "cancelled", "m2": "cancelled", "m3": "handled"}
        assert rooms.agent.abandoned == [("m1", "Cancelled")]
        assert rooms.agent.started == ["m1"]


@asynccontextmanager
async def two_busy_chats(*, local: bool = False) -> AsyncGenerator[House]:
    """A turn runs and a message waits in each of two chats; sender 2 may run commands, sender 1 is the owner."""
    sender = None if local else "1"
    gate = Gate()
    async with house(FakeAgent(gate)) as rooms:
        for chat in ("a", "b"):
            for place in ("runs", "waits"):
                await rooms.say(place, id=f"{place} in {chat}", chat=chat, sender=sender)
        async with asyncio.timeout(5):
            while len(rooms.agent.started) < 2:
                await asyncio.sleep(0)
        yield rooms
        gate.go.set()


async def test_the_owners_stop_ends_what_runs_and_waits_in_every_conversation() -> None:
    """Reference 3, section 3.3: stop all; what the owner says next runs."""
    async with two_busy_chats() as rooms:
        await rooms.say("/stop", id="stop", chat="a", sender="1")
        await rooms.say("next", id="next", chat="a", sender="1")

        outcomes = {event.message_id: event.outcome for event in await rooms.settled(5)}
        assert rooms.channel.sent[0] == ("stop", "2 turns ended. 2 waiting messages were dropped.")
        assert outcomes == {
            "runs in a": "cancelled", "waits in a": "cancelled", "runs in b": "cancelled", "waits in b": "cancelled",
            "stop": "handled",
        }  # fmt: skip


async def test_a_stop_of_somebody_else_ends_only_that_conversation() -> None:
    """Issue 3, step 7."""
    async with two_busy_chats() as rooms:
        await rooms.say("/stop", id="stop", chat="a", sender="2")

        outcomes = {event.message_id: event.outcome for event in await rooms.settled(3)}
        assert outcomes == {"runs in a": "cancelled", "waits in a": "cancelled", "stop": "handled"}
        assert rooms.agent.abandoned == [("runs in a", "Cancelled")]


IN_A = frozenset({"runs in a", "waits in a"})
IN_BOTH = IN_A | {"runs in b", "waits in b"}


@pytest.mark.parametrize(
    ("text", "sender", "said", "ended"),
    [
        ("/stop", None, "Stopped. 1 waiting message was dropped.", IN_A),
        ("/stop all", None, "2 turns ended. 2 waiting messages were dropped.", IN_BOTH),
        ("/stop ALL ", "1", "2 turns ended. 2 waiting messages were dropped.", IN_BOTH),
        ("/stop all", "2", "Stopped. 1 waiting message was dropped.", IN_A),
        ("/stop now", "1", USAGE, frozenset[str]()),
    ],
    ids=["local", "local, all", "owner, all", "commander, all", "more than it takes"],
)  # fmt: skip
async def test_how_far_a_stop_goes(text: str, sender: str | None, said: str, ended: frozenset[str]) -> None:
    """Issue 3: at a local client it ends that conversation, with `all` everything; nobody else reaches further."""
    async with two_busy_chats(local=sender is None) as rooms:
        await rooms.say(text, id="stop", chat="a", sender=sender)

        outcomes = {event.message_id: event.outcome for event in await rooms.settled(1 + len(ended))}
        assert rooms.channel.sent[0] == ("stop", said)
        assert outcomes == {"stop": "handled", **dict.fromkeys(ended, "cancelled")}


async def test_a_guest_without_commands_stops_nothing() -> None:
    async with two_busy_chats() as rooms:
        await rooms.say("/stop", id="stop", chat="a", sender="3")
        await rooms.settled(1)

        assert rooms.channel.sent == [("stop", "/stop is for the owner of this agent.")]
        assert rooms.agent.abandoned == []


async def test_a_command_whose_machinery_comes_later_says_so() -> None:
    async with house() as rooms:
        await rooms.say("/ultra do it", id="m1")

        assert await rooms.channel.wait_for(1) == [
            ("m1", "I have no wider mode yet. Send it without the command and I answer as usual.")
        ]
        assert rooms.agent.started == []


async def test_a_stop_on_an_idle_conversation_does_not_arm_itself() -> None:
    """QUE-02: the next message runs."""
    async with house() as rooms:
        await rooms.say("/stop", id="m1")
        await rooms.say("hi", id="m2")

        assert await rooms.channel.wait_for(2) == [("m1", "Nothing is running here."), ("m2", "HI")]


async def test_a_message_after_a_stop_is_not_stopped() -> None:
    gate = Gate()
    async with house(FakeAgent(gate)) as rooms:
        await rooms.say("long", id="m1")
        await asyncio.wait_for(gate.entered.wait(), 5)
        await rooms.say("/stop", id="m2")
        await rooms.say("next", id="m3")
        gate.go.set()

        await rooms.settled(3)
        assert rooms.channel.sent == [("m2", "Stopped."), ("m3", "answer to next")]


async def test_a_turn_that_ends_at_once_is_never_a_crash() -> None:
    """QUE-07: two hundred instant turns, all completed."""
    async with house() as rooms:
        for number in range(200):
            await rooms.say("hi", id=f"m{number}", chat=f"c{number % 20}")

        assert {event.outcome for event in await rooms.settled(200)} == {"completed"}


async def test_a_turn_that_breaks_ends_only_itself() -> None:
    async def broken(turn: Turn, port: ReplyPort) -> TurnOutcome:
        if turn.message.text == "bad":
            raise RuntimeError("bug")
        return completed("fine")

    async with house(FakeAgent(broken)) as rooms:
        await rooms.say("bad", id="m1")
        await rooms.say("good", id="m2")

        assert [event.outcome for event in await rooms.settled(2)] == ["failed", "completed"]
        assert rooms.channel.sent[1] == ("m2", "fine")
        assert rooms.agent.abandoned == [("m1", "Failed")]


async def test_a_failed_turn_tells_the_sender_and_is_abandoned() -> None:
    async def fails(turn: Turn, port: ReplyPort) -> TurnOutcome:
        return Failed("The provider is away.", "http 503")

    async with house(FakeAgent(fails)) as rooms:
        await rooms.say("hi")
        settled = await rooms.settled(1)

        assert rooms.channel.sent == [("m1", "The provider is away.")]
        assert (settled[0].outcome, settled[0].error) == ("failed", "The provider is away.")


async def test_a_reply_that_cannot_be_delivered_is_not_committed() -> None:
    async with house(clock=ManualClock(moves_itself=True)) as rooms:
        rooms.channel.broken = True
        await rooms.say("hi")

        assert [event.outcome for event in await rooms.settled(1)] == ["failed"]
        assert (rooms.agent.committed, rooms.agent.abandoned) == ([], [("m1", "Failed")])


@covers("whoami.answers-id")
async def test_whoami_and_help_answer_without_a_turn() -> None:
    async with house() as rooms:
        await rooms.say("/whoami", id="m1")
        await rooms.say("/help", id="m2")
        sent = dict(await rooms.channel.wait_for(2))

        assert sent["m1"] == "You are `cli` on `cli` (operator)."
        assert {command.name for command in COMMANDS if f"`/{command.name}`" in sent["m2"]} == {
            command.name for command in COMMANDS if command.run is not None
        }
        assert rooms.agent.started == []


async def test_a_guest_is_refused_what_is_the_owners_and_is_not_shown_it() -> None:
    async with house() as rooms:
        for id, text in (("m1", "/new"), ("m2", "/help")):
            await rooms.ingest(message(text, id=id, channel="telegram", sender="3"))
        sent = dict(await rooms.channel.wait_for(2))

        assert sent["m1"] == "/new is for the owner of this agent."
        assert "/stop" not in sent["m2"]
        assert rooms.conversations.cleared == []


async def test_new_clears_this_conversation() -> None:
    async with house() as rooms:
        await rooms.say("/new")
        await rooms.channel.wait_for(1)

        assert rooms.conversations.cleared == [ConversationKey("cli", "chat", "root")]


async def test_compact_says_what_it_did_or_why_not() -> None:
    agent = FakeAgent()
    async with house(agent) as rooms:
        await rooms.say("/compact", id="m1")
        await rooms.channel.wait_for(1)
        done = Compacted(12, 9_000, 700, 1, RequestSize(31_000, measured=True))
        agent.compacted = done
        await rooms.say("/compact", id="m2")
        await rooms.channel.wait_for(2)
        agent.compacted = replace(done, peak=RequestSize(31_000))
        await rooms.say("/compact", id="m3")
        told = [text for _, text in await rooms.channel.wait_for(3)]

    assert told[0] == "There is nothing older to sum up in this conversation."
    assert told[1].startswith("I summed up 12 older messages. What I keep before me takes about 700 tokens instead of")
    assert "31,000 tokens by the provider's count" in told[1]
    assert "31,000" not in told[2]


async def test_a_guest_who_may_compact_is_told_no_figures_of_the_owner() -> None:
    """README, what it may cost: a guest is told no figures."""
    reached = Reached(Span.DAY, "usd", 2_000_000, 1_990_000, 0)
    agent = FakeAgent(compacted=BudgetReached("p/m", reached, date(2026, 1, 1), "UTC", background=True))
    async with house(agent) as rooms:
        await rooms.say("/compact", id="m1", sender="2")
        await rooms.channel.wait_for(1)
        await rooms.say("/compact", id="m2", sender="1")
        told = [text for _, text in await rooms.channel.wait_for(2)]

    assert told[0] == GUEST[Span.DAY]
    assert "$2.00" in told[1]


async def test_a_command_that_breaks_is_no_success() -> None:
    async with house() as rooms:
        rooms.conversations.broken = True
        await rooms.say("/new")
        settled = await rooms.settled(1)

        assert rooms.channel.sent == [("m1", BROKEN)]
        assert (settled[0].outcome, settled[0].error) == ("failed", BROKEN)


@covers("enqueue.trust-attached", "trust.whole-turn")
async def test_the_turn_carries_the_trust_decided_at_the_door() -> None:
    seen: list[tuple[str, str, bool]] = []

    async def look(turn: Turn, port: ReplyPort) -> TurnOutcome:
        seen.append((turn.message.id, turn.trust, turn.attended))
        return completed("ok")

    async with house(FakeAgent(look)) as rooms:
        await rooms.say("hi", id="m1")
        await rooms.ingest(message("hi", id="m2", channel="telegram", sender="2"))
        await rooms.settled(2)

        assert sorted(seen) == [("m1", "operator", True), ("m2", "guest", True)]


@covers("enqueue.agent-not-ready")
async def test_closing_lets_running_turns_end_and_refuses_new_messages() -> None:
    gate = Gate()
    async with house(FakeAgent(gate)) as rooms:
        await rooms.say("long", id="m1")
        await asyncio.wait_for(gate.entered.wait(), 5)
        async with asyncio.TaskGroup() as group:
            group.create_task(rooms.gateway.drain())
            await asyncio.sleep(0)
            await rooms.say("late", id="m2")
            await rooms.settled(1)
            gate.go.set()

    told = "I'm restarting — please send your message again in a moment."
    assert rooms.channel.sent == [("m2", told), ("m1", "answer to long")]


async def test_many_conversations_with_random_stops_keep_their_order_and_lose_nothing() -> None:
    """Each message is settled exactly once; answers keep the order of their conversation."""
    chance = random.Random(7)

    async def yields(turn: Turn, port: ReplyPort) -> TurnOutcome:
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(0)
        return completed(turn.message.id)

    async with house(FakeAgent(yields)) as rooms:
        sent = 0
        for number in range(400):
            chat = f"c{chance.randrange(40)}"
            text = "/stop" if chance.random() < 0.1 else "hi"
            await rooms.say(text, id=f"{number}", chat=chat)
            sent += 1
            if chance.random() < 0.3:
                await asyncio.sleep(0)
        settled = await rooms.settled(sent)

        assert sorted(int(event.message_id) for event in settled) == list(range(sent))
        completed_ids = {event.message_id for event in settled if event.outcome == "completed"}
        answered = [id for id, text in rooms.channel.sent if text == id]
        assert set(answered) == completed_ids
        for chat in range(40):
            mine = [
                int(event.message_id)
                for event in settled
                if event.key.chat_id == f"c{chat}" and event.outcome == "completed"
            ]
            assert mine == sorted(mine)
        assert rooms.agent.most_at_once == 1


async def test_idle_lanes_are_forgotten() -> None:
    """QUE-09: a month of different chats leaves nothing in memory."""
    async with house() as rooms:
        for number in range(500):
            await rooms.say("hi", id=f"m{number}", chat=f"c{number}")
        await rooms.settled(500)
        await asyncio.sleep(0)

        assert rooms.gateway.lanes.counts() == (0, 0)
        assert rooms.gateway.lanes._lanes == {}


async def test_an_accepted_message_is_announced_with_its_trust() -> None:
    async with house() as rooms:
        await rooms.say("hi")
        first = (await rooms.news.get()).event

        assert first == MessageReceived(ConversationKey("cli", "chat", "root"), "m1", "operator", "hi")
