"""One tool call: admit, check the arguments, ask the owner where that is needed, run, give exactly one result.

Called by the loop, one call at a time. Only what stands in the turn's own scope can run: a name outside it is
answered the same way whether it exists or not. A tool's time begins when it may run. A tool's failure is a result,
because the model must read it; only cancellation passes through. Every call, run or not, leaves one ToolStarted and
one ToolCalled. What keeps a call of our own tools from running is told in our own words: nothing was read, so it is not
framed and exposes no turn.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import fastjsonschema

from fermix.agent.approvals import Approvals
from fermix.agent.arguments import mended
from fermix.agent.capability import Capability, ToolContext
from fermix.agent.consent import Consent
from fermix.agent.exposure import Exposure
from fermix.agent.model import ToolCall, ToolResult, valid_text
from fermix.agent.results import OUTPUT_CHARS, bounded, presentable
from fermix.agent.risk import note_result
from fermix.agent.schema import compiled
from fermix.agent.turn import ReplyPort, Turn
from fermix.clock import Clock
from fermix.config.secrets import hide_known
from fermix.errors import FermixError, NotAllowed, Refused
from fermix.events import Events, ToolCalled, ToolStarted, preview
from fermix.trust import PolicyClass

log = logging.getLogger(__name__)

PROBLEM_CHARS = 300  # a broken megabyte must not be echoed back to the model


@dataclass(frozen=True, slots=True)
class ToolScope:
    """All that one turn may call, fixed at its start. `output_chars` bounds the text of one result. `exposure`,
    `originals` and `noes`, the seals of calls that the owner refused, grow while the turn runs.
    """

    tools: Mapping[str, Capability]
    turn: Turn
    port: ReplyPort
    output_chars: int = OUTPUT_CHARS
    exposure: Exposure = field(default_factory=Exposure)
    originals: dict[str, str] = field(default_factory=dict[str, str])
    noes: set[str] = field(default_factory=set[str])


class Dispatcher:
    """One per daemon; holds no state of a turn. Without `approvals` nobody can be asked."""

    def __init__(self, events: Events, clock: Clock, approvals: Approvals | None = None) -> None:
        self._events = events
        self._clock = clock
        self._consent = Consent(approvals)

    async def dispatch(self, call: ToolCall, scope: ToolScope) -> ToolResult:
        """Run one call. Never raises but for cancellation of the turn."""
        began_at = self._begin(call, scope)
        result = ToolResult(False, "stopped before it ended")
        try:
            result = await self._answer(call, scope)
        finally:
            self._end(call, scope, result, began_at)
        return result

    def skip(self, call: ToolCall, scope: ToolScope, reason: str) -> ToolResult:
        """Answer a call that will not run."""
        began_at = self._begin(call, scope)
        result = ToolResult(False, f"not run: {reason}")
        self._end(call, scope, result, began_at)
        return result

    async def _answer(self, call: ToolCall, scope: ToolScope) -> ToolResult:
        capability = scope.tools.get(call.name)
        if capability is None:
            return ToolResult(False, str(NotAllowed(call.name[:64])), denied=True)
        if call.problem is not None:
            return ToolResult(False, bounded(valid_text(call.problem), PROBLEM_CHARS))
        meant = mended(call, capability)
        refusal = await self._why_not(meant, capability, scope)
        if refusal is not None and not capability.foreign:
            return replace(refusal, text=hide_known(valid_text(refusal.text)))
        result = refusal or await self._run(meant, capability, scope)
        if _is_stopping():  # a tool's library took the cancellation for its own: nothing may start after this
            raise asyncio.CancelledError
        shown = presentable(result, capability, output_chars=scope.output_chars)
        note_result(scope.exposure, capability, shown)
        return shown

    async def _why_not(self, call: ToolCall, capability: Capability, scope: ToolScope) -> ToolResult | None:
        """Check the arguments and ask the owner where that is needed; return what keeps the call from running."""
        try:
            compiled(capability)(dict(call.arguments), name_prefix="arguments")
            await self._consent.admit(call, capability, _context(call, scope), scope.noes)
        except fastjsonschema.JsonSchemaValueException as error:
            return ToolResult(False, f"arguments do not fit: {error.message[:PROBLEM_CHARS]}")
        except FermixError as error:
            return _told(error)
        except Exception as error:
            return _broken(capability, error)
        return None

    async def _run(self, call: ToolCall, capability: Capability, scope: ToolScope) -> ToolResult:
        """Run; what goes wrong becomes a result, so that the model can mend it."""
        context, bound = _context(call, scope), asyncio.timeout(capability.timeout_s)
        try:
            async with bound:
                if capability.policy is not PolicyClass.READ_ONLY:
                    await scope.port.effect(capability.name)
                return await capability.run(call.arguments, context)
        except asyncio.CancelledError:
            if _is_stopping():
                raise
            log.exception("tool cancelled itself: %s", capability.name)
            return ToolResult(False, "the tool broke off by itself")
        except FermixError as error:
            return _told(error)
        except Exception as error:
            if bound.expired():
                return ToolResult(False, f"gave no result within {capability.timeout_s:g} s and was stopped")
            return _broken(capability, error)

    def _begin(self, call: ToolCall, scope: ToolScope) -> float:
        arguments = call.problem or json.dumps(dict(call.arguments), ensure_ascii=False)
        turn, exposed = scope.turn, scope.exposure.state
        self._events.emit(ToolStarted(turn.key, turn.id, call.id, call.name, preview(arguments), exposed))
        return self._clock.monotonic()

    def _end(self, call: ToolCall, scope: ToolScope, result: ToolResult, began_at: float) -> None:
        turn = scope.turn
        duration_s = self._clock.monotonic() - began_at
        text = preview(result.text)
        self._events.emit(
            ToolCalled(turn.key, turn.id, call.id, call.name, result.ok, duration_s, text, result.outside)
        )


def _context(call: ToolCall, scope: ToolScope) -> ToolContext:
    return ToolContext(scope.turn, scope.port, call.id, scope.tools, scope.exposure, scope.originals)


def _told(error: FermixError) -> ToolResult:
    return ToolResult(False, error.user_text or str(error), denied=isinstance(error, Refused))


def _broken(capability: Capability, error: Exception) -> ToolResult:
    log.exception("tool failed: %s", capability.name)
    return ToolResult(False, f"the tool failed: {type(error).__name__}: {str(error)[:PROBLEM_CHARS]}")


def _is_stopping() -> bool:
    """Tell a stop of this turn from a cancellation that a tool's library leaked."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
