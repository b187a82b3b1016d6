"""What one turn has read: words of others, things of this machine, and the addresses that were put before it.

Made by the runner, noted by dispatch, asked by the rules in `risk.py`. Everything in it grows and nothing shrinks.
"""

from __future__ import annotations

import re
from typing import Literal
from urllib.parse import urlsplit

MOST_GIVEN = 2_000  # addresses of one turn; what comes after them is not remembered, so it must be asked for
MOST_ADDRESS_CHARS = 2_000

_WRITTEN = re.compile(r"https?://[^\s<>\"`{}|\\^\[\]]+", re.IGNORECASE)
_TRAILING = ".,;:!?'*_~)"  # of the sentence or the markup around an address, or its own last character
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class Exposure:
    """Of one turn. `earlier` and `local_earlier` say what its history held when it began: words from outside, things
    read on this machine. `local` says that the turn itself has read something here: a file, the output of a command.
    """

    def __init__(self, *, earlier: bool = False, local_earlier: bool = False) -> None:
        self.earlier = earlier
        self.local_earlier = local_earlier
        self.local = False
        self._sources: dict[str, None] = {}
        self._given: set[str] = set()

    @property
    def sources(self) -> tuple[str, ...]:
        """The tools whose results brought words from outside, in the order of their first one."""
        return tuple(self._sources)

    @property
    def outside(self) -> bool:
        """Whether words from outside stand before the model, read by this turn or by an earlier one."""
        return self.earlier or bool(self._sources)

    @property
    def state(self) -> Literal["no", "earlier", "now"]:
        """The same for a trace: who has read them."""
        return "now" if self._sources else "earlier" if self.earlier else "no"

    def read_from(self, source: str) -> None:
        """Note that words from outside came in through the tool `source`."""
        self._sources[source] = None

    def read_local(self) -> None:
        """Note that something of this machine was read."""
        self.local = True

    def note_addresses(self, text: str) -> None:
        """Note the web addresses that stand in the owner's message, or in words that came over the network."""
        for written in _WRITTEN.finditer(text):
            for address in _readings(written.group()):
                if len(self._given) >= MOST_GIVEN:
                    return
                self._given.add(address)

    def given(self, url: str) -> bool:
        """Say whether exactly this address was put before the turn, so that nothing of the model's is in it.

        Compared letter by letter; only what carries no choice may differ: the case of scheme and host, the default
        port, a missing "/" and a left out fragment. An address that names a user is never given.
        """
        spelled = _spelled(url)
        return spelled is not None and spelled in self._given


def _readings(written: str) -> set[str]:
    """Return what an address in running text may mean: with and without the marks behind it, and its fragment."""
    if len(written) > MOST_ADDRESS_CHARS:
        return set()
    bare = written.rstrip(_TRAILING)
    texts = [written[:end] for end in range(len(bare), len(written) + 1)][:8]
    spelled = {_spelled(text) for text in texts} | {_spelled(bare.partition("#")[0])}
    return {text for text in spelled if text is not None}


def _spelled(url: str) -> str | None:
    """Return the one spelling in which an address is compared, None for what is no plain address."""
    if len(url) > MOST_ADDRESS_CHARS or "\\" in url or " " in url or not url.isprintable():
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    host = parts.netloc.lower().removesuffix(_DEFAULT_PORTS.get(parts.scheme, ""))
    if parts.scheme not in _DEFAULT_PORTS or not host or "@" in host:
        return None
    query = f"?{parts.query}" if parts.query else ""
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return f"{parts.scheme}://{host}{parts.path or '/'}{query}{fragment}"
