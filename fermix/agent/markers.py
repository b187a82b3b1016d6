"""Our own lines in a history: where an answer, a result or the beginning is missing.

Written by the memory and the agent, where a provider's wire wants something to stand. A model reads them and may say
them after us; such a line is never an answer (DLV-13 in `outgoing.py`), and a small model is not shown them at all.
"""

from __future__ import annotations

STOPPED = "[stopped before an answer]"
FAILED = "[failed before an answer]"
DIED = "[Fermix stopped before an answer]"
NOT_RUN = "[not run: the turn ended first]"
BEGINNING = "[earlier messages are not shown]"
WORDLESS = "[answered without words]"
"""Where a file or a reaction was the whole answer."""
NOTED = "[noted]"
"""What follows a summary, where a wire wants an answer."""

SUMMARY_BEGINS = "[Fermix: a summary stands for "
"""How the message begins that holds the summary of what is not shown any more."""

UNANSWERED = frozenset({STOPPED, FAILED, DIED})
"""What stands in the place of an answer."""

MARKERS = UNANSWERED | {NOT_RUN, BEGINNING, WORDLESS, NOTED}
