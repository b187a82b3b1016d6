"""A platform that fails in every way, people who stop what they began, and a daemon that goes in the middle of it, five
times over: whatever was accepted has one end, and what people see is what the ledger says."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

import pytest

from fermix.agent.model import TextDelta
from fermix.agent.turn import ReplyPort, Turn, TurnOutcome
from fermix.gateway.channel import StreamTier
from fermix.gateway.delivery import MARK
from tests.fakes.channel import Ability, FakeAgent, FakeChannel, completed
from tests.fakes.platform import AWAY, LOST_ANSWER, Entry, Platform, rate_limited
from tests.gateway.conftest import Install, Open

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LIVES, CHATS, MESSAGES = 5, 12, 4
PAUSE_S = 0.004
WORDS = "The quick brown fox jumps over the lazy dog, again and again. "
FAULTS = (AWAY, LOST_ANSWER, rate_limited(2.0))
Tier = Literal["off", "block", "draft", "lookup"]
TIERS: dict[Tier, tuple[StreamTier, Collection[Ability]]] = {
    "off": ("off", ()),
    "block": ("block", ()),
    "draft": ("draft", ("drafts",)),
    "lookup": ("draft", ("drafts", "lookup")),
}


@dataclass
class Weather:
    """What goes wrong, by chance, and what was said meanwhile."""

    chance: random.Random
    said: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0

    def spoil(self, platform: Platform) -> None:
        """Let calls be slow and fail; one in seven does."""
        call = platform.call

        async def unreliable(entry: Entry) -> str:
            if entry.op in ("send", "open", "edit", "discard") and self.chance.random() < 0.15:
                platform.fail(entry.op, self.chance.choice(FAULTS))
            await asyncio.sleep(self.chance.random() * PAUSE_S)
            return await call(entry)

        platform.call = unreliable  # type: ignore[method-assign]

    async def turn(self, turn: Turn, port: ReplyPort) -> TurnOutcome:
        for _ in range(self.chance.randrange(4)):
            port.stream(TextDelta(WORDS))
            await asyncio.sleep(self.chance.random() * PAUSE_S)
        return completed(f"{WORDS * self.chance.randrange(1, 4)}{ending(turn.message.id)}")

    async def conversation(self, life: Open, chat: str) -> None:
        for _ in range(MESSAGES):
            await asyncio.sleep(self.chance.random() * PAUSE_S)
            self.count += 1
            id = f"{chat}-{self.count}"
            if self.chance.random() < 0.1:
                await life.say("/stop", f"stop-{id}", chat, sender="4")
            self.said[chat].append(id)
            await life.say("hi", id, chat, sender="4")


def ending(id: str) -> str:
    """What only the answer to this message ends with."""
    return f"END {id}."


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("tier", TIERS)
async def test_every_message_has_one_end_and_no_reply_comes_twice_unmarked(
    install: Install, monkeypatch: pytest.MonkeyPatch, tier: Tier, seed: int
) -> None:
    """DLV-01, DLV-05, DLV-07, DLV-11."""
    monkeypatch.setattr("fermix.gateway.gateway.DRAIN_S", 0.02)
    streaming, can = TIERS[tier]
    weather, platform = Weather(random.Random(seed)), install.platform
    platform.text_limit, platform.edit_interval_s = (None, 200)[seed % 2], 0.0
    weather.spoil(platform)
    for number in range(LIVES):
        channel = FakeChannel("chat", platform=platform, can=can)
        async with install.start(FakeAgent(weather.turn), channel, bound_s=60) as life:
            life.gateway.use(streaming={"chat": streaming}, album_quiet_s={})
            async with asyncio.TaskGroup() as group:
                for chat in range(CHATS):
                    group.create_task(weather.conversation(life, f"c{chat}"))
            if number == LIVES - 1:
                await life.gateway.lanes.idle()

    outcomes = install.outcomes()
    assert None not in outcomes.values()
    assert install.rows("SELECT * FROM outbox WHERE state IN ('unsent', 'in_flight')") == []
    given_up = {id for (id,) in install.rows(_GIVEN_UP)}
    for said in weather.said.values():
        seen = {id: _shown(platform, id) for id in said}
        assert all(len(texts) <= 1 or _is_marked(platform, id) for id, texts in seen.items())
        assert [id for id in said if outcomes[id] == "answered" and not seen[id] and id not in given_up] == []
        assert _in_order(platform, said) == [id for id in said if seen[id]]


_GIVEN_UP = """
SELECT message_id FROM inbox WHERE id IN (SELECT entry_id FROM outbox WHERE state = 'failed')
"""


def _shown(platform: Platform, id: str) -> list[str]:
    return [one.text for one in platform.shown() if one.answers == id and ending(id) in one.text]


def _is_marked(platform: Platform, id: str) -> bool:
    return any(MARK in one.text for one in platform.shown() if one.answers == id)


def _in_order(platform: Platform, said: Collection[str]) -> list[str]:
    """The messages of a conversation in the order in which their answers came."""
    found = (entry.answers for entry in platform.log("send", "open", "edit") if ending(entry.answers) in entry.text)
    return [id for id in dict.fromkeys(found) if id in said and _shown(platform, id)]
