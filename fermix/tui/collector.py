"""Collect garbage when nobody waits for a key.

Drawing leaves many cycles, and a full collection in the middle of a streamed reply stalled the keys by 100 to
250 ms (measured). So the objects of the first frame are set aside, the automatic full collection is made rare,
and the app asks for one when it is idle.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS = 10_000  # per young collection, about 2 ms; 700 would promote what lives for a frame only
MIDDLE_EVERY = 10
FULL_EVERY = 50  # a bound for a reply that streams for minutes


def begin() -> None:
    """Set aside what start-up made. Called once, after the first frame."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, MIDDLE_EVERY, FULL_EVERY)


def collect_when_idle() -> None:
    """Do the whole work now, if drawing has made any since the last time."""
    if any(gc.get_count()[1:]):
        gc.collect()
