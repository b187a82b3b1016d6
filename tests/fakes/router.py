"""A model router in this process that plays a script, for tests of the loop and the runner.

`tests/contracts/test_routers.py` holds it to what the real one promises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fermix.agent.model import ChatRequest, Completion, FinishReason, Purpose, TextDelta, ToolCall, Usage
from fermix.agent.providers.provider import ModelFacts, OnDelta, Provider, Route
from fermix.message import ConversationKey

ROUTE = Route("fake", "script-1")
FACTS = ModelFacts(context_tokens=128_000, max_output_tokens=4_096, vision=True)

Live = Callable[[ChatRequest, OnDelta], Awaitable[Completion]]
Line = Completion | Exception | Live


def says(text: str, *, finish: FinishReason = "stop") -> Completion:
    return Completion(text, (), Usage(10, 2), finish, ROUTE.provider, ROUTE.model)


def calls(*tool_calls: ToolCall, text: str = "") -> Completion:
    return Completion(text, tool_calls, Usage(10, 2), "tool_calls", ROUTE.provider, ROUTE.model)


@dataclass(frozen=True)
class ScriptedRoute:
    """One route; calls through it go to its router's script."""

    router: ScriptedRouter
    facts: ModelFacts
    route: Route = ROUTE

    async def complete(self, request: ChatRequest, on_delta: OnDelta) -> Completion:
        return await self.router.complete(request, on_delta, turn_id="")


class ScriptedRouter:
    """Plays one line per call and keeps the requests. Running out of lines is a failure of the test."""

    def __init__(self, script: Sequence[Line], facts: ModelFacts = FACTS) -> None:
        self.requests: list[ChatRequest] = []
        self.purposes: list[Purpose] = []
        self.routes: tuple[Provider, ...] = (ScriptedRoute(self, facts),)
        self.current: Route | None = ROUTE
        self._script = list(script)

    async def complete(
        self,
        request: ChatRequest,
        on_delta: OnDelta,
        *,
        turn_id: str,
        purpose: Purpose = "turn",
        key: ConversationKey | None = None,
    ) -> Completion:
        self.purposes.append(purpose)
        self.requests.append(request)
        line = self._script.pop(0)
        if isinstance(line, Exception):
            raise line
        if not isinstance(line, Completion):
            return await line(request, on_delta)
        if line.text:
            on_delta(TextDelta(line.text))
        return line
