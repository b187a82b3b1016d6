"""What works right now, judged from live services and never from configuration. Read by HTTP, the socket and status.

Shape: reference 3, section 11.1. Overall: "setup_required" beats "degraded" beats "ready".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, Protocol

from fermix import __version__
from fermix.clock import Clock
from fermix.events import EventQueue, Recorded, ServiceState
from fermix.home import Home
from fermix.protocol.methods import ChannelHealth, LocalRow, ProviderRow, ServiceRow

Overall = Literal["ready", "degraded", "setup_required"]
TOO_EARLY = "the daemon is still starting"


class Models(Protocol):
    """Who could answer."""

    @property
    def current(self) -> str | None:
        """The route that would answer now, None when none can."""
        ...

    def missing(self) -> list[str]:
        """What has to be mended before anybody can answer, as setup judges it; nothing when somebody can."""
        ...

    def rows(self) -> list[ProviderRow]: ...

    def local(self) -> LocalRow: ...


class Channels(Protocol):
    """What is known of the channels."""

    def rows(self) -> list[ChannelHealth]: ...


class HealthBoard:
    """Keeps the last state of every service. Itself a service that follows the events."""

    name = "health"

    def __init__(self, home: Home, clock: Clock, news: EventQueue) -> None:
        self._home = home
        self._clock = clock
        self._news = news
        self._states: dict[str, ServiceState] = {}
        self._models: Models | None = None
        self._channels: Channels | None = None
        self._changed: tuple[str, ...] = ()
        self.started_at: datetime = clock.now()

    def watch_models(self, models: Models) -> None:
        self._models = models

    def watch_channels(self, channels: Channels) -> None:
        self._channels = channels

    def waits_for_restart(self, sections: Sequence[str]) -> None:
        """Take which sections of the configuration differ from those the daemon began with."""
        self._changed = tuple(sections)

    async def run(self, started: Callable[[], None]) -> None:
        started()
        while True:
            self._take([await self._news.get()])

    def services(self) -> list[ServiceRow]:
        self._take(self._news.drain())
        return [
            {"service": state.service, "state": state.state, "reason": state.reason}
            for state in sorted(self._states.values(), key=lambda state: state.service)
        ]

    def overall(self) -> Overall:
        if self._missing():
            return "setup_required"
        broken = any(row["state"] != "up" for row in self.services())
        return "degraded" if broken else "ready"

    def failures(self) -> list[str]:
        """One sentence for each thing that is missing or broken."""
        lost = [f"{row['service']}: {row['reason']}" for row in self.services() if row["state"] != "up"]
        return [*self._missing(), *lost]

    def report(self) -> dict[str, object]:
        """The body of GET /health/ready."""
        models = self._models
        return {
            "status": self.overall(),
            "failures": self.failures(),
            "config": {
                "home": str(self._home.root),
                "path": str(self._home.config),
                "workspace": str(self._home.workspace),
            },
            "restart_required?": bool(self._changed),
            "restart_reasons": [f"[{section}] was changed" for section in self._changed],
            "providers": [_provider(row) for row in models.rows()] if models else [],
            "local_model": models.local() if models else None,
            "channels": self.channels(),
            "memory": {"store": self._state_of("database"), "conversation_store": self._state_of("history")},
            "services": self.services(),
            **self.identity(),
        }

    def channels(self) -> list[ChannelHealth]:
        """Whether each channel reads; what does not is among the services too, and degrades."""
        return self._channels.rows() if self._channels else []

    def identity(self) -> dict[str, object]:
        return {
            "app": "fermix",
            "version": __version__,
            "pid": os.getpid(),
            "timestamp": self._clock.now().isoformat(),
        }

    def _missing(self) -> list[str]:
        return self._models.missing() if self._models else [TOO_EARLY]

    def _state_of(self, service: str) -> str:
        down = any(row["service"] == service and row["state"] != "up" for row in self.services())
        return "degraded" if down else "ready"

    def _take(self, news: list[Recorded]) -> None:
        for item in news:
            if isinstance(item.event, ServiceState):
                self._states[item.event.service] = item.event


def _provider(row: ProviderRow) -> dict[str, object]:
    return {
        "name": row["provider"],
        "status": "ready" if row["usable"] else "setup_required",
        "auth_mode": "none" if row["key_from"] == "none needed" else "api_key",
        "primary": row["primary"],
        "model": row["model"],
    }
