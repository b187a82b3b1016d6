"""Whether a message that is sent to a channel now would be read. Judged here alone, by its last proof of life.

What changes is told as the state of a service, "channel NAME", so that health, status and terminals learn of it. A
configured mode or a running task proves nothing: only what the adapter has seen of its platform does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fermix.clock import Clock
from fermix.events import Events, ServiceState
from fermix.gateway import Channel
from fermix.protocol.methods import ChannelHealth

SILENT_S = 90.0  # the longest poll of a platform lasts 50 s, and a heartbeat comes within 45 s
LOOK_S = 5.0

NO_ADAPTER = "this version cannot connect to it; what is sent there is not read"
NO_SIGN = "no sign of life yet; a message sent there now may not be read"
SILENT = f"no sign of life for more than {SILENT_S:g} s; a message sent there now may not be read"


def judge(channel: Channel, now: float) -> ChannelHealth:
    """Judge one channel; `now` is monotonic."""
    alive_at = channel.alive_at
    reason = NO_SIGN if alive_at is None else SILENT if now - alive_at > SILENT_S else ""
    return {"channel": channel.name, "state": "degraded" if reason else "ready", "reason": reason}


class ChannelWatch:
    """A service that looks at every channel again and again. `enabled` are the names that the owner switched on: one
    that nothing here connects to is degraded too.
    """

    name = "channels"

    def __init__(self, channels: Sequence[Channel], enabled: Sequence[str], events: Events, clock: Clock) -> None:
        self._channels = channels
        self._enabled = enabled
        self._events = events
        self._clock = clock
        self._rows: dict[str, ChannelHealth] = {}

    def rows(self) -> list[ChannelHealth]:
        """Return what the last look found."""
        return list(self._rows.values())

    async def run(self, started: Callable[[], None]) -> None:
        self._look()
        started()
        while True:
            await self._clock.sleep(LOOK_S)
            self._look()

    def _look(self) -> None:
        now = self._clock.monotonic()
        rows = [judge(channel, now) for channel in self._channels]
        connected = {row["channel"] for row in rows}
        rows += [_unconnected(name) for name in self._enabled if name not in connected]
        for row in rows:
            if row != self._rows.get(row["channel"]):
                self._rows[row["channel"]] = row
                state = "down" if row["reason"] else "up"
                self._events.emit(ServiceState(f"channel {row['channel']}", state, row["reason"]))


def _unconnected(name: str) -> ChannelHealth:
    return {"channel": name, "state": "degraded", "reason": NO_ADAPTER}
