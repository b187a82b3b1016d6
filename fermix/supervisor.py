"""Keep long-lived parts running: a `Service` runs until cancelled, a `Supervisor` restarts what fails.

One for one is the supervisor; all together is one `run` with its own TaskGroup; in order is nesting.
The outside world (`OUTSIDE`) never takes the daemon down; our own parts (`OURS`) do, after five failures
in a row, so that the service manager starts the whole program again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from fermix.clock import Clock
from fermix.errors import FermixError, NeedsOperator
from fermix.events import Events, ServiceState

log = logging.getLogger(__name__)


class Service(Protocol):
    """Something that runs until it is cancelled."""

    @property
    def name(self) -> str: ...

    async def run(self, started: Callable[[], None]) -> None:
        """Open, call `started` once it works, serve; close on every way out.

        Raises: NeedsOperator to be parked until the configuration changes.
        """
        ...


class GaveUp(FermixError):
    """A part of ours could not be kept up; the program ends."""


@dataclass(frozen=True, slots=True)
class Restart:
    """How a failed service is started again; `max_failures` None means for ever."""

    max_failures: int | None
    first_delay_s: float = 0.5
    longest_delay_s: float = 60.0
    settled_after_s: float = 30.0

    def delay_s(self, failures: int) -> float:
        full = min(self.first_delay_s * 2.0 ** min(failures - 1, 16), self.longest_delay_s)
        return full * random.uniform(0.75, 1.0)  # jitter: what fell together must not rise together


OURS = Restart(max_failures=5)
OUTSIDE = Restart(max_failures=None)


class Supervisor:
    """Entering makes one task per service; leaving cancels them and waits."""

    def __init__(self, services: Sequence[Service], restart: Restart, events: Events, clock: Clock) -> None:
        self._services = services
        self._restart = restart
        self._events = events
        self._clock = clock
        self._group = asyncio.TaskGroup()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        for service in self._services:
            self._tasks[service.name] = self._group.create_task(self._keep(service), name=service.name)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks.values():
            task.cancel()
        await self._group.__aexit__(kind, error, trace)

    async def _keep(self, service: Service) -> None:
        failures = 0
        while (up_for_s := await self._run_once(service)) is not None:
            failures = 1 if up_for_s >= self._restart.settled_after_s else failures + 1
            if failures == self._restart.max_failures:
                raise GaveUp(f"{service.name} failed {failures} times in a row; `fermix logs` says why")
            await self._clock.sleep(self._restart.delay_s(failures))

    async def _run_once(self, service: Service) -> float | None:
        """Run to its end; seconds it was up, or None when only the operator can help."""
        up_at: float | None = None

        def started() -> None:
            nonlocal up_at
            up_at = self._clock.monotonic()
            self._events.emit(ServiceState(service.name, "up"))

        try:
            await service.run(started)
            self._events.emit(ServiceState(service.name, "down", "returned"))
        except NeedsOperator as error:
            log.warning("service waits for the operator: %s: %s", service.name, error)
            self._events.emit(ServiceState(service.name, "parked", str(error)))
            return None
        except Exception as error:
            log.exception("service failed: %s", service.name)
            self._events.emit(ServiceState(service.name, "down", repr(error)))
        return 0.0 if up_at is None else self._clock.monotonic() - up_at
