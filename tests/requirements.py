"""Every promise of the spec that can be broken, with its id and source; tests name the ones they show.

`@covers("queue.fifo")` marks a test. `tests/house/test_requirements.py` fails when a promise called done has no
test, and when a test names a promise that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=Callable[..., object])


def covers(*ids: str) -> Callable[[T], T]:
    """Mark a test as showing these promises."""

    def mark(test: T) -> T:
        test.__dict__["covers"] = ids
        return test

    return mark
