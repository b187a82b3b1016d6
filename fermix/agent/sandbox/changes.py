"""Changes to the sandbox's policy as values: what is wanted, and what exactly would come of it.

Made by `policy.py`; shown to the owner before a change that opens anything.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from fermix.agent.sandbox.settings import Mode, SandboxSettings
from fermix.visible import fenced, spelled


@dataclass(frozen=True, slots=True)
class GrantPath:
    """Open a folder with all below it."""

    path: str


@dataclass(frozen=True, slots=True)
class RevokePath:
    """Take a grant back."""

    path: str


@dataclass(frozen=True, slots=True)
class SetMode:
    """Choose which folders are open without a grant."""

    mode: Mode


Change = GrantPath | RevokePath | SetMode


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a change would do, to the last detail. `folder` is its real path, None for a mode; `identity` are device
    and inode of that folder, so that another one put in its place is noticed.
    """

    change: Change
    folder: str | None
    identity: tuple[int, int] | None
    before: SandboxSettings
    after: SandboxSettings
    opened: tuple[str, ...]
    closed: tuple[str, ...]
    widens: bool

    @property
    def seal(self) -> str:
        """A hash over exactly what would be done."""
        facts = {
            "change": type(self.change).__name__,
            "folder": [self.folder, self.identity],
            "before": self.before.model_dump(),
            "after": self.after.model_dump(),
            "roots": [self.opened, self.closed],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def diff(self) -> str:
        """Show what changes in config.toml and which folders open or close, every character spelled out."""
        lines = ["[sandbox]"]
        if self.before.mode != self.after.mode:
            lines += [f'- mode = "{self.before.mode}"', f'+ mode = "{self.after.mode}"']
        before, after = self.before.allowed_roots, self.after.allowed_roots
        lines += [f'- allowed_roots: "{spelled(path)}"' for path in before if path not in after]
        lines += [f'+ allowed_roots: "{spelled(path)}"' for path in after if path not in before]
        lines += [f'closes: "{spelled(path)}"' for path in self.closed]
        lines += [f'opens: "{spelled(path)}"' for path in self.opened]
        return "\n".join(lines)

    def question(self, reason: str) -> str:
        """Put it to the owner as Markdown: the real path, the reason and the difference, nothing left out."""
        lines = [] if self.folder is None else [f'folder: "{spelled(self.folder)}" ({len(self.folder)} characters)']
        lines += [f'reason: "{spelled(reason)}"'] if reason else []
        text = "\n".join([*lines, self.diff()])
        return f"May I change what I can reach?\n\n{fenced(text)}"
