"""What a provider's prompt cache lives on: each request of a conversation begins with the bytes of the one before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from fermix.agent.memory import Conversations
from fermix.agent.providers.catalog import LOCAL_ID, PROVIDERS, local_provider
from fermix.agent.providers.embedded import EmbeddedModel
from fermix.agent.providers.local_files import LocalFiles
from fermix.agent.providers.local_provider import LocalProvider
from fermix.agent.providers.provider import Endpoint, Provider
from fermix.agent.providers.remote import RemoteProvider
from fermix.agent.providers.routing import Router
from fermix.agent.providers.stream import Patience
from fermix.agent.turn import Completed
from fermix.config.model import LocalModelSettings
from fermix.net import Net
from fermix.store import Database
from tests.agent.conftest import World, world
from tests.contracts.test_providers import WIRES
from tests.fakes.books import FakeBooks
from tests.fakes.clock import ManualClock
from tests.fakes.provider import Answer, Asked, Call, ScriptedProvider
from tests.fakes.router import FACTS, ROUTE
from tests.fakes.turns import make_capability, make_turn

__all__ = ["world"]

CACHE_MARK = b',"cache_control":{"type":"ephemeral"}'
SCRIPT = [
    Answer(text="Good morning. Grüße 🌞"),
    Answer(text="Looking.", reasoning="he wants to know", calls=(Call("look", {"b": 1, "a": "ä"}),)),
    Answer(text="Found it."),
    Answer(text="Gladly."),
]
QUESTIONS = ("good morning", "what is there?", "thank you\n\nvery much")


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    async with Net.open(loopback_only=True) as net:
        yield net


def router_for(provider: str, fake: ScriptedProvider, net: Net, world: World, folder: Path) -> Router:
    async def endpoint() -> Endpoint:
        return Endpoint(fake.base_url, None)

    clock = ManualClock(moves_itself=True)
    asked: Provider
    if provider == LOCAL_ID:
        model = EmbeddedModel(LocalModelSettings(), LocalFiles.of(folder), (), {}, world.events, clock)
        asked = LocalProvider(model, local_provider(endpoint, net))
    else:
        asked = RemoteProvider(ROUTE, FACTS, WIRES[provider], endpoint, net, Patience())
    return Router([asked], [], clock, world.events, FakeBooks())


def unmarked(asked: Asked) -> bytes:
    """Take out the mark that says how far a server may cache: it stands on the last block and moves with the end."""
    head, found, talk = asked.raw.partition(b'"messages":[')
    return head + found + talk.replace(CACHE_MARK, b"")


def old_part(asked: Asked) -> bytes:
    """What the next request must begin with: everything but the brackets behind the last message."""
    end = b"}]}]}" if asked.wire == "messages" else b"]}"
    whole = unmarked(asked)
    assert whole.endswith(end)
    return whole.removesuffix(end)


@pytest.mark.parametrize("provider", [*(spec.id for spec in PROVIDERS), LOCAL_ID])
async def test_each_request_begins_with_the_bytes_of_the_one_before(
    world: World, net: Net, tmp_path: Path, provider: str
) -> None:
    """Issue "Memory that lasts", composer: stable bytes across turns, steps and restarts, with calls and results.

    Three turns, because the local model is shown no more.
    """
    async with ScriptedProvider(SCRIPT) as fake:
        router = router_for(provider, fake, net, world, tmp_path)
        for number, question in enumerate(QUESTIONS):
            async with (
                Database.open(world.home.database) as database,
                Conversations.open(database, world.clock, world.events) as world.conversations,
                world.open(router, make_capability()) as agent,
            ):
                turn = make_turn(question, turn_id=f"t{number}")
                outcome = await world.run(agent, turn)
                assert isinstance(outcome, Completed)
                await agent.commit(turn, outcome)

    assert fake.refusals == []
    assert len(fake.requests) == len(SCRIPT)
    for earlier, later in pairwise(fake.requests):
        begins = old_part(earlier)
        assert unmarked(later)[: len(begins)] == begins
        assert len(unmarked(later)) > len(begins) + len("{}")
