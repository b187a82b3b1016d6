"""What one conversation shows, top to bottom: frozen blocks, each with a key that never changes.

Made by `session.py`, rendered by the widgets. A long text is several blocks, so that no single widget
is ever large: that bounds what one streamed word or one resize can cost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

PART_CHARS = 4_000  # worst Markdown of this length parses in about 40 ms
LANGUAGE_CHARS = 32  # an info string is written again for every part, so it must stay short
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class UserBlock:
    """What the owner wrote. `continued` marks every part but the first."""

    key: str
    text: str
    continued: bool = False


@dataclass(frozen=True, slots=True)
class ReplyBlock:
    """Markdown from the model, or from Fermix itself when `model` is None. While it streams, `model` is "".

    The last part of a delivered reply is `signed`: it says who spoke.
    """

    key: str
    text: str
    model: str | None
    signed: bool = False


@dataclass(frozen=True, slots=True)
class ToolBlock:
    """One tool call. `duration_s` is None until it ended or when it is not known."""

    key: str
    call_id: str
    name: str
    arguments: str
    state: Literal["running", "ok", "failed", "stopped"]
    result: str = ""
    duration_s: float | None = None


@dataclass(frozen=True, slots=True)
class NoteBlock:
    """A remark of the screen or a marker in the history."""

    key: str
    text: str
    kind: Literal["note", "error"]


Block = UserBlock | ReplyBlock | ToolBlock | NoteBlock


def split_text(text: str, *, limit: int = PART_CHARS) -> list[str]:
    """Cut Markdown into parts of about `limit` characters, at blank lines where there are any.

    A code fence that is cut open is closed and opened again, so each part stands alone.
    """
    parts: list[str] = []
    rest = text
    while len(rest) > limit:
        at = _cut_at(rest, limit)
        part, rest = rest[:at], rest[at:]
        if fence := _open_fence(part):
            part = f"{part.rstrip()}\n{fence[:3]}"
            rest = fence + "\n" + rest.lstrip("\n")
        parts.append(part)
    parts.append(rest)
    return parts


def _cut_at(text: str, limit: int) -> int:
    for mark in ("\n\n", "\n", " "):
        at = text.rfind(mark, limit // 2, limit)
        if at > 0:
            return at + len(mark)
    return limit


def _open_fence(part: str) -> str:
    """The line that opened a fence which `part` leaves open, else ""."""
    opened = ""
    for match in _FENCE.finditer(part):
        mark, info = match.group(1), match.group(2).strip()
        if not opened:
            opened = mark[:3] + info[:LANGUAGE_CHARS]
        elif mark[0] == opened[0] and not info:
            opened = ""
    return opened
