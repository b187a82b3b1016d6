"""The real router over real HTTP, with one route to a scripted provider, for tests above the providers' room."""

from __future__ import annotations

from fermix.agent.budget import Books
from fermix.agent.providers.anthropic import MessagesWire
from fermix.agent.providers.openai_chat import ChatWire
from fermix.agent.providers.openai_responses import ResponsesWire
from fermix.agent.providers.provider import Endpoint, ModelFacts, Route
from fermix.agent.providers.remote import RemoteProvider
from fermix.agent.providers.routing import Router
from fermix.agent.providers.stream import Patience
from fermix.events import Events
from fermix.net import Net
from tests.fakes.books import FakeBooks
from tests.fakes.clock import ManualClock
from tests.fakes.provider import ScriptedProvider
from tests.fakes.router import FACTS, ROUTE

WIRES = {"chat": ChatWire, "messages": MessagesWire, "responses": ResponsesWire}


def router_to(
    fake: ScriptedProvider,
    net: Net,
    events: Events,
    *,
    wire: str = "chat",
    route: Route = ROUTE,
    facts: ModelFacts = FACTS,
    books: Books | None = None,
) -> Router:
    """Make a router whose only route is the scripted server; its pauses take no time."""

    async def endpoint() -> Endpoint:
        return Endpoint(fake.base_url, None)

    provider = RemoteProvider(route, facts, WIRES[wire](), endpoint, net, Patience())
    return Router([provider], [], ManualClock(moves_itself=True), events, books or FakeBooks())
