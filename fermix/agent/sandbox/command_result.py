"""What a command that has ended looks like as a result: its output as text, and how it ended.

Its output was cut by bytes where it grew too long or was stopped; a secret that the cut went through is replaced here
as far as it is there. Everything else is hidden where every result is: `agent/results.py`.
"""

from __future__ import annotations

import signal

from fermix.agent.model import ToolResult
from fermix.config.secrets import hide_at_cut
from fermix.native.child import Finished, Limits


def ended(finished: Finished, limits: Limits, note: str = "") -> ToolResult:
    """Return the result of a command; `note` stands behind its output."""
    text = finished.output.decode("utf-8", "replace")
    text = (text if finished.ending == "exited" else hide_at_cut(text)) + note
    problem = _problem(finished, limits)
    return ToolResult(True, text) if problem is None else ToolResult(False, f"{text}\n[{problem}]".lstrip("\n"))


def _problem(finished: Finished, limits: Limits) -> str | None:
    match finished.ending:
        case "timeout":
            return f"stopped after {limits.timeout_s:g} s; use a quicker command or a larger timeout_ms"
        case "output_cap":
            return f"stopped after {limits.output_bytes} bytes of output, {finished.cut_bytes} more were thrown away"
        case "exited":
            return _exit_problem(finished.exit_code)


def _exit_problem(exit_code: int) -> str | None:
    if exit_code < 0:
        return f"ended by signal {-exit_code} ({signal.strsignal(-exit_code)})"
    return f"exit code {exit_code}" if exit_code else None
