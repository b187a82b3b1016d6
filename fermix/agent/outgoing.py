"""What of a model's text may reach a person. The loop passes every streamed part and every answer through here.

Three things never do: a tool call that the model wrote as text instead of calling, and our own internal elements
and markers when a model echoes them (DLV-13). Elements are recognised where they start a line outside a code block,
markers where they are the whole of one; prose about them, and code that shows them, stays as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fermix.agent.markers import MARKERS
from fermix.agent.model import ToolCall
from fermix.agent.providers.calls import new_call_id

CALL_OPENINGS = ("<tool_call", "<function_calls", "<invoke name=", "<function=", "<|tool_call", "[TOOL_CALLS]")
INTERNAL_OPENINGS = {"<fermix-untrusted": "</fermix-untrusted>", "<memory-context": "</memory-context>"}
OPENINGS = CALL_OPENINGS + tuple(INTERNAL_OPENINGS)
FENCE = "```"
UNDECIDED = (*OPENINGS, *MARKERS, FENCE)

WRITTEN_AS_TEXT = "this call was written as text and did not run; call the tool through the tool interface"

_LINE_PART = re.compile(r"[^\n]*\n|[^\n]+")
_NAME = re.compile(r"""(?:["']name["']\s*:\s*|name=|<function=)["']?([A-Za-z0-9_-]{1,64})""")


class Veil:
    """Lets visible text through as it streams; holds the start of a line back until it is known to be harmless."""

    def __init__(self) -> None:
        self.hidden: list[str] = []
        self._held = ""
        self._inside_line = False
        self._fenced = False
        self._closing: str | None = None

    def feed(self, text: str) -> str:
        """Return what of all text so far can be shown now and was not yet."""
        return "".join(self._part(part) for part in _LINE_PART.findall(text))

    def finish(self) -> str:
        """Return what was held back and turned out harmless, at the end of the text."""
        rest, self._held = self._held, ""
        return "" if self._closing is not None or self._is_marker(rest) else rest

    def _part(self, part: str) -> str:
        if self._closing is not None:
            return self._hide(part)
        if self._inside_line:
            self._inside_line = not part.endswith("\n")
            return part
        return self._line_start(part)

    def _line_start(self, part: str) -> str:
        self._held += part
        start = self._held.lstrip(" \t")
        opening = None if self._fenced else next((o for o in OPENINGS if start.startswith(o)), None)
        if opening is not None:
            self.hidden.append(opening)
            self._closing = INTERNAL_OPENINGS.get(opening, "")
            held, self._held = self._held, ""
            return self._hide(held)
        if not part.endswith("\n") and any(o.startswith(start.rstrip()) for o in UNDECIDED):
            return ""
        if self._is_marker(start):
            self._held = ""
            return ""
        if start.startswith(FENCE):
            self._fenced = not self._fenced
        shown, self._held = self._held, ""
        self._inside_line = not shown.endswith("\n")
        return shown

    def _is_marker(self, line: str) -> bool:
        marker = line.strip()
        if self._fenced or marker not in MARKERS:
            return False
        self.hidden.append(marker)
        return True

    def _hide(self, part: str) -> str:
        """Drop whole lines until one holds the closing tag."""
        self._held += part
        if part.endswith("\n"):
            if self._closing and self._closing in self._held:
                self._closing = None
            self._held = ""
        return ""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An answer as a person may see it. `calls` holds the failed call when one was written as text; `dropped` names
    the internal elements and markers that were left out.
    """

    text: str
    calls: tuple[ToolCall, ...]
    dropped: tuple[str, ...]


def outgoing(text: str) -> Outgoing:
    """Part a whole answer into what is shown and what is not."""
    veil = Veil()
    shown = veil.feed(text) + veil.finish()
    calls = tuple(_failed_call(text[text.rindex(o) :]) for o in veil.hidden if o in CALL_OPENINGS)
    dropped = tuple(o.lstrip("<") for o in veil.hidden if o not in CALL_OPENINGS)
    return Outgoing(shown.rstrip().lstrip("\n"), calls, dropped)


def _failed_call(written: str) -> ToolCall:
    name = _NAME.search(written)
    return ToolCall(new_call_id(), name.group(1) if name else "tool_call", {}, problem=WRITTEN_AS_TEXT)
