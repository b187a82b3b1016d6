"""Commands that are refused in every mode. A seat belt against a model's slip, no defence against intent.

The text of a command does not say what it will open, so nothing else is read out of it: a path in it may be a URL,
and a harmless one may expand to anything. Whoever may use the shell may do what the user of the daemon may do.
"""

from __future__ import annotations

import re

# Where a shell expects a program: at the start, after an operator, or behind a word that runs the next one.
_START = r"(?:^|[;&|({\n`!]|\$\(|\b(?:then|do|else)\s)\s*"
_RUNNER = r"(?:(?:sudo|doas|env|nohup|nice|exec|command|time|setsid)\s+(?:-\S+\s+|\w+=\S*\s+)*)*"
_COMMAND = _START + _RUNNER + r"(?:\S*/)?"
_END = r"(?=$|[\s;&|)}])"

_TOPS = r"/(?:etc|usr|bin|sbin|lib|lib64|boot|dev|home|root|var|System|Library)"
_WHOLE = rf"""["']?(?:/|~|\$\{{?HOME\}}?|{_TOPS})["']?/?\.?\*?["']?"""
_RECURSIVE = r"rm\s+(?:-\S+\s+)*(?:-\w*[rR]\w*|--recursive)\s+(?:\S+\s+)*?"

REFUSED = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (_COMMAND + _RECURSIVE + _WHOLE + _END, "deletes a whole system or home folder"),
        (_COMMAND + r"mkfs(?:\.\w+)?" + _END, "formats a disk"),
        (_COMMAND + r"dd\s[^;&|\n]*\bof=/dev/(?!null|zero|stdout|stderr|tty)", "writes onto a device"),
        (r"(\S+)\s*\(\)\s*\{[^}]*\1\s*\|\s*\1\s*&", "starts itself without end"),
        (_COMMAND + r"kill\s+(?:-\S+\s+)*(?:--\s+)?-1\s*(?=$|[;&|)}\n])", "kills every process"),
        (_COMMAND + r"(?:pkill|killall)\s[^;&|\n]*(?:-u\b|--euid\b|--user\b)", "kills every process of a user"),
        (_COMMAND + r"(?:shutdown|reboot|poweroff|halt|(?:tel)?init\s+[06])" + _END, "turns the machine off"),
        (_COMMAND + r"systemctl\s+(?:-\S+\s+)*(?:poweroff|reboot|halt)" + _END, "turns the machine off"),
        (_START + r"sudo\s+(?:-\S+\s+)*(?:-\w*S|--stdin)" + _END, "passes a password to sudo"),
    )
)


def why_refused(command: str) -> str | None:
    """Say what a command must not do, or None when nothing speaks against it."""
    return next((what for pattern, what in REFUSED if pattern.search(command)), None)
