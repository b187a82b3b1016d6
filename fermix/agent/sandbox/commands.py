"""Commands that are refused in every mode. A seat belt against a model's slip, no defence against intent.

The text of a command does not say what it will open, so nothing else is read out of it: a path in it may be a URL,
and a harmless one may expand to anything. Whoever may use the shell may do what the user of the daemon may do.
"""

from __future__ import annotations

import re

# Every repetition has a bound, so that a command of a hundred kilobytes is judged in milliseconds.
# Where a shell expects a program: at the start, after an operator, or behind a word that runs the next one.
_START = r"(?:^|[;&|({\n`!]|\$\(|\b(?:then|do|else)\s)[^\S\n]{0,20}"  # behind a line end the next start begins
_OPTIONS = r"(?:-\S{1,40}\s{1,9}){0,9}"
_VARIABLES = r"(?:\w{1,40}=\S{0,99}\s{1,9}){0,9}"
_SETTINGS = r"(?:-[ugCDhpRrTn]\s{1,9}\w{1,40}\s{1,9}|-\S{1,40}\s{1,9}|\w{1,40}=\S{0,99}\s{1,9}){0,9}"
_RUNNER = rf"{_VARIABLES}(?:(?:sudo|doas|env|nohup|nice|exec|command|time|setsid)\s{{1,9}}{_SETTINGS}){{0,4}}"
_COMMAND = _START + _RUNNER + r"(?:\S{0,99}/)?"
_END = r"(?=$|[\s;&|)}`])"
_ARGUMENTS = r"[^;&|\n]{0,200}"

_TOPS = r"/(?:etc|usr|bin|sbin|lib|lib64|boot|dev|home|proc|root|sys|var|System|Library)"
_HOME = r"(?:~|\$\{?HOME\}?|/root|/(?:home|Users)/[^/\s]{1,64})"
_KEYS = rf"""{_HOME}["']?/\.(?:anthropic|aws|claude|codex|docker|fermix|gnupg|kube|ssh)"""
_WHOLE = rf"""["']?(?:/|{_HOME}|{_TOPS}|{_KEYS})["']?/?\.?\*?["']?"""
_RECURSIVE = rf"rm\s{{1,9}}{_OPTIONS}(?:-\w{{0,9}}[rR]\w{{0,9}}|--recursive)\s+(?:\S{{1,200}}\s{{1,9}}){{0,40}}?"

REFUSED = tuple(
    (re.compile(pattern), what)
    for pattern, what in (
        (_COMMAND + _RECURSIVE + _WHOLE + _END, "deletes a whole system or home folder, or one of keys"),
        (_COMMAND + r"mkfs(?:\.\w{1,20})?" + _END, "formats a disk"),
        (_COMMAND + rf"dd\s{_ARGUMENTS}\bof=[\"']?/dev/(?!null|zero|stdout|stderr|tty)", "writes onto a device"),
        (r"([^\s;&|(){}]{1,64})\s?\(\)\s?\{[^}]{0,400}\1\s?\|\s?\1\s?&", "starts itself without end"),
        (
            _COMMAND + rf"kill\s+(?:-[sn]\s{{1,9}}\w{{1,9}}\s{{1,9}})?{_OPTIONS}(?:--\s+)?-1\s{{0,9}}(?=$|[;&|)}}\n])",
            "kills every process",
        ),
        (
            _COMMAND + rf"(?:pkill|killall)\s{_ARGUMENTS}(?<=\s)(?:-[uU]|--e?uid\b|--user\b)",
            "kills every process of a user",
        ),
        (_COMMAND + r"(?:shutdown|reboot|poweroff|halt|(?:tel)?init\s+[06])" + _END, "turns the machine off"),
        (_COMMAND + rf"systemctl\s+{_OPTIONS}(?:poweroff|reboot|halt)" + _END, "turns the machine off"),
        (_START + rf"sudo\s+{_OPTIONS}(?:-\w{{0,9}}S|--stdin)" + _END, "passes a password to sudo"),
    )
)


def why_refused(command: str) -> str | None:
    """Say what a command must not do, or None when nothing speaks against it."""
    return next((what for pattern, what in REFUSED if pattern.search(command)), None)
