"""What one turn has read that others wrote. Dispatch notes it; the rules of risk ask for it."""

from __future__ import annotations


class Exposure:
    """Grows while its turn runs and never shrinks. `earlier` says that the history held words from outside already."""

    def __init__(self, *, earlier: bool = False) -> None:
        self.earlier = earlier
        self._sources: dict[str, None] = {}

    @property
    def sources(self) -> tuple[str, ...]:
        """The tools whose results brought words from outside, in the order of their first one."""
        return tuple(self._sources)

    def read_from(self, source: str) -> None:
        """Note that words from outside came in through the tool `source`."""
        self._sources[source] = None
