"""The keys of messages that were accepted within the last day: a quick answer in front of the ledger's table.

The ledger asks before it goes to the disk and adds a key only once its row is there, so that what is known here is
never a message that could still be lost. Which of several racers is first is decided by the table alone.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta

KEPT = timedelta(hours=24)  # Ingress and trust, idempotency
MOST_KEYS = 100_000  # about 20 MB; what was pushed out is still found in the table

Key = tuple[str, str]


class SeenKeys:
    """A bounded memory, oldest first. A key is (channel, the platform's message id)."""

    def __init__(self) -> None:
        self._seen: OrderedDict[Key, datetime] = OrderedDict()

    def has(self, key: Key, now: datetime) -> bool:
        seen_at = self._seen.get(key)
        return seen_at is not None and now - seen_at < KEPT

    def add(self, key: Key, now: datetime) -> None:
        self._seen[key] = now
        self._seen.move_to_end(key)
        while len(self._seen) > MOST_KEYS or now - next(iter(self._seen.values())) >= KEPT:
            self._seen.popitem(last=False)
