"""Notice a model that makes the same tool call again and again. One guard per turn, asked before each call.

Repetition inside a window is only remarked on, once per call, because polling can be meant. The same call many
times in a row, with nothing between, is a loop and ends the turn.
"""

from __future__ import annotations

import json
from collections import deque
from enum import StrEnum

from fermix.agent.model import ToolCall

WINDOW = 10
WARN_AT = 3
END_AT = 5


class Verdict(StrEnum):
    RUN = "run"
    WARN = "warn"
    END = "end"


class LoopGuard:
    """Remembers the last calls of one turn by name and arguments; their order in the object does not matter."""

    def __init__(self) -> None:
        self._recent: deque[str] = deque(maxlen=WINDOW)
        self._warned: set[str] = set()
        self._in_a_row = 0

    def observe(self, call: ToolCall) -> Verdict:
        """Say what to do with a call that is about to run."""
        signature = _signature(call)
        self._in_a_row = self._in_a_row + 1 if self._recent and self._recent[-1] == signature else 1
        self._recent.append(signature)
        if self._in_a_row >= END_AT:
            return Verdict.END
        if self._recent.count(signature) >= WARN_AT and signature not in self._warned:
            self._warned.add(signature)
            return Verdict.WARN
        return Verdict.RUN


def _signature(call: ToolCall) -> str:
    arguments = json.dumps(dict(call.arguments), sort_keys=True)
    return f"{call.name} {arguments} {call.problem or ''}"
