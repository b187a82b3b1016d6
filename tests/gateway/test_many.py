"""Very many conversations at once: order, completeness, stops, and what is left of them in memory."""

from __future__ import annotations

import asyncio
import gc
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

from fermix.agent.turn import Cancelled, Completed, ReplyPort, Turn, TurnOutcome
from fermix.store import Database
from tests.fakes.channel import FakeAgent, completed
from tests.gateway.conftest import Install, Open
from tests.requirements import covers

SEED = 20
MOST_DELAY_S = 0.004
STOP_SHARE = 0.06


@dataclass
class Story:
    """What was said and what became of it, in the order in which it happened."""

    chance: random.Random
    said: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    stops: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    begun: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    answered: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    async def turn(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        """Take a while, and answer with what nobody else would say."""
        self.begun[turn.key.chat_id].append(turn.message.id)
        await asyncio.sleep(self.chance.random() * MOST_DELAY_S)
        return completed(f"{turn.key.chat_id}: {turn.message.text}")

    async def conversation(self, life: Open, chat: str, count: int) -> None:
        """Say one thing after another, at any pace, and stop it all now and then."""
        for number in range(count):
            await asyncio.sleep(self.chance.random() * MOST_DELAY_S)
            id = f"{chat}-{number}"
            if number and self.chance.random() < STOP_SHARE:
                self.stops[chat].append(id)
                await life.say("/stop", id, chat, sender="4")
            self.said[chat].append(f"{id}.")
            await life.say(f"text of {id}.", f"{id}.", chat, sender="4")


class Recording(FakeAgent):
    """Notes, lane by lane, what was stored."""

    def __init__(self, story: Story) -> None:
        super().__init__(story.turn)
        self.story = story

    async def commit(self, turn: Turn, outcome: Completed) -> None:
        self.story.answered[turn.key.chat_id].append(turn.message.id)

    async def abandon(self, turn: Turn, outcome: object) -> None:
        assert isinstance(outcome, Cancelled)


async def told(install: Install, chats: int, messages: int) -> Story:
    """Play it; everything is settled when this returns."""
    story = Story(random.Random(SEED))
    agent = Recording(story)
    async with install.start(agent, bound_s=200) as life:
        async with asyncio.TaskGroup() as group:
            for number in range(chats):
                group.create_task(story.conversation(life, f"c{number}", messages))
        await life.gateway.lanes.idle()
    assert agent.most_at_once == 1
    return story


def check(install: Install, story: Story) -> None:
    outcomes = install.outcomes()
    stops = {id for ids in story.stops.values() for id in ids}
    assert set(outcomes) == {id for ids in story.said.values() for id in ids} | stops
    assert {outcomes[id] for id in stops} == {"handled"}
    shown = Counter((one.chat, one.answers, one.text) for one in install.platform.shown() if one.answers not in stops)
    expected: Counter[tuple[str, str, str]] = Counter()
    for chat, said in story.said.items():
        answered = [id for id in said if outcomes[id] == "answered"]
        assert {outcomes[id] for id in said} <= {"answered", "stopped"}
        assert story.answered[chat] == answered
        assert [id for id in said if id in set(story.begun[chat])] == story.begun[chat]
        expected.update((chat, id, f"{chat}: text of {id}") for id in answered)
        last_stop = int(story.stops[chat][-1].split("-")[1]) if story.stops[chat] else 0
        after = [id for id in said if int(id.split("-")[1].rstrip(".")) >= last_stop]
        assert {outcomes[id] for id in after} == {"answered"}
    assert shown == expected
    assert any(outcome == "stopped" for outcome in outcomes.values())


@covers("queue.fifo", "queue.independent", "queue.waiting-is-kept")
async def test_a_hundred_conversations_with_random_stops_keep_their_order_and_lose_nothing(install: Install) -> None:
    """Each message is settled once, none answers in another conversation, what was stopped says so."""
    check(install, await told(install, 100, 5))


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_a_thousand_conversations_with_twenty_messages_each_keep_their_order(install: Install) -> None:
    """Issue 3, tests."""
    check(install, await told(install, 1_000, 20))


VISITS_AT_ONCE = 100


async def living(database: Database) -> Counter[str]:
    """Count the objects of the program that somebody still holds, and the tasks that run."""
    for _ in range(2):
        await database.run(lambda _: None)  # what was queued is written, and the batch after it forgotten
    gc.collect()
    kinds = (type(one) for one in gc.get_objects())
    found = Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith("fermix."))
    return found + Counter(tasks=len(asyncio.all_tasks()))


async def visit(life: Open, chats: range) -> None:
    """Hear from each of these chats once, as a message and as a command."""
    for start in chats[::VISITS_AT_ONCE]:
        async with asyncio.TaskGroup() as group:
            for number in range(start, start + VISITS_AT_ONCE):
                group.create_task(life.say("hi", f"m{number}", chat=f"c{number}"))
                group.create_task(life.say("/whoami", f"w{number}", chat=f"c{number}"))
        await life.gateway.lanes.idle()
        forget(life)


def forget(life: Open) -> None:
    """Let the fakes drop what they remember of it."""
    life.news.drain()
    life.channel.platform._log._entries.clear()
    life.agent.started.clear()
    life.agent.committed.clear()
    life.agent.running.clear()


async def left_behind(install: Install, chats: int) -> Counter[str]:
    """Hear from so many different chats; returns the objects that the second half left in memory."""
    async with install.start(bound_s=200) as life:
        await visit(life, range(chats // 2))
        install.clock.advance(24 * 3600)  # the keys of the first half are forgotten with the first new one
        before = await living(life.database)
        await visit(life, range(chats // 2, chats))
        install.clock.advance(24 * 3600)
        await life.say("hi", "last")
        await life.gateway.lanes.idle()
        forget(life)
        after = await living(life.database)
        assert life.gateway.lanes._lanes == {}
        assert len(life.ledger._seen._seen) == 1
    return after - before


async def test_a_thousand_different_chats_leave_no_object_behind(install: Install) -> None:
    """QUE-09."""
    assert await left_behind(install, 1_000) == {}


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_twenty_thousand_different_chats_leave_no_object_behind(install: Install) -> None:
    """QUE-09: a month of them."""
    assert await left_behind(install, 20_000) == {}
