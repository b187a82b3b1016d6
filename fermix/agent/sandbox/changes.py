"""Changes to the sandbox's policy as values: what is wanted, and what exactly would come of it.

Read from the owner's words by `change_words.py`, worked out by `policy.py`; shown to the owner before a change that
opens anything.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from fermix.agent.sandbox.profiles import PRESETS
from fermix.agent.sandbox.settings import CommandSettings, Mode, Preset, Profile, SandboxSettings
from fermix.config.edit import Changes, Key, Value
from fermix.visible import fenced, spelled

SECTION = "sandbox"
RUNS_OUTSIDE = "it runs as you do, not behind the walls of commands, before each command that gets the value"


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


@dataclass(frozen=True, slots=True)
class GrantEnv:
    """Let commands have a variable of the daemon's environment."""

    name: str


@dataclass(frozen=True, slots=True)
class SetEnv:
    """Let commands have a variable whose value a helper prints."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RevokeEnv:
    """Take a variable back, and its helper with it."""

    name: str


@dataclass(frozen=True, slots=True)
class DenyEnv:
    """Keep a variable from commands, whatever else would pass it."""

    name: str


@dataclass(frozen=True, slots=True)
class SetProfile:
    """Choose whether the enabled presets are offered."""

    profile: Profile


@dataclass(frozen=True, slots=True)
class EnablePreset:
    """Make the programs of a preset tools of their own."""

    preset: Preset


@dataclass(frozen=True, slots=True)
class DisablePreset:
    """Take a preset back."""

    preset: Preset


@dataclass(frozen=True, slots=True)
class GrantCommand:
    """Make a program a tool of its own; without an argv, turn one on again that is defined already."""

    name: str
    argv: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RevokeCommand:
    """Turn such a tool off; its definition stays."""

    name: str


Change = (
    GrantPath | RevokePath | SetMode
    | GrantEnv | SetEnv | RevokeEnv | DenyEnv
    | SetProfile | EnablePreset | DisablePreset | GrantCommand | RevokeCommand
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Target:
    """The folder or the program of a change: its real path, and device and inode there, so that another one put in its
    place is noticed; identity None where it need not be there any more.
    """

    path: str
    identity: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a change would do, to the last detail. `target` is None for a change that touches no file."""

    change: Change
    target: Target | None
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
            "target": None if self.target is None else [self.target.path, self.target.identity],
            "before": self.before.model_dump(),
            "after": self.after.model_dump(),
            "roots": [self.opened, self.closed],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def written(self) -> Changes:
        """Return what changes in config.toml."""
        before, after = _by_key(self.before), _by_key(self.after)
        changes: dict[Key, Value | None] = {
            (SECTION, *key): after.get(key)
            for key in before | after
            if before.get(key) != after.get(key) and not self._is_in_removed(key)
        }
        return {**changes, **{(SECTION, *section): None for section in self._removed()}}

    def diff(self) -> str:
        """Show what changes in config.toml and which folders open or close, every character spelled out."""
        before, after = _by_key(self.before), _by_key(self.after)
        lines = [f"[{SECTION}]"]
        for key in before | after:
            if before.get(key) != after.get(key):
                lines += _lines(".".join(key), before.get(key), after.get(key))
        lines += [f'closes: "{spelled(path)}"' for path in self.closed]
        lines += [f'opens: "{spelled(path)}"' for path in self.opened]
        return "\n".join(lines)

    def question(self, reason: str) -> str:
        """Put it to the owner as Markdown: the real path, the reason and the difference, nothing left out."""
        path = None if self.target is None else self.target.path
        lines = [] if path is None else [f'{self._noun}: "{spelled(path)}" ({len(path)} characters)']
        lines += [f'reason: "{spelled(reason)}"'] if reason else []
        lines += self._facts()
        text = "\n".join([*lines, self.diff()])
        return f"May I change what I can reach?\n\n{fenced(text)}"

    @property
    def _noun(self) -> str:
        return "folder" if isinstance(self.change, GrantPath | RevokePath) else "program"

    def _facts(self) -> list[str]:
        """Say which programs come with what is named."""
        if isinstance(self.change, EnablePreset):
            return [_program_line(name, command) for name, command in PRESETS[self.change.preset].items()]
        name = self.change.name if isinstance(self.change, GrantEnv | SetEnv) else ""
        source = self.after.env.sources.get(name)
        if source is None or source.command is None:
            return []
        return [f"{name} is what this prints: {_shown((source.command, *source.args))}", RUNS_OUTSIDE]

    def _removed(self) -> list[Key]:
        """The sections with a name of their own that are gone altogether."""
        before, after = _named(self.before), _named(self.after)
        return [section for section in before if section not in after]

    def _is_in_removed(self, key: Key) -> bool:
        return key[:2] in self._removed()


def _by_key(settings: SandboxSettings) -> dict[Key, Value]:
    """Return every setting by its path below the section; what has a name of its own without its defaults."""
    dump = settings.model_dump()
    for name, source in settings.env.sources.items():
        dump["env"][name] = {"source": source.source, **source.model_dump(exclude_defaults=True)}
    for name, command in settings.commands.own.items():
        dump["commands"][name] = command.model_dump(exclude_defaults=True)
    return dict(_flat((), dump))


def _flat(above: Key, table: dict[str, object]) -> list[tuple[Key, Value]]:
    found: list[tuple[Key, Value]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            found += _flat((*above, name), value)  # pyright: ignore[reportUnknownArgumentType] - a model's dump
        elif isinstance(value, str | int | float | bool | tuple):
            found.append(((*above, name), value))  # pyright: ignore[reportUnknownArgumentType] - tuples hold texts
    return found


def _program_line(name: str, command: CommandSettings) -> str:
    gets = f", gets {', '.join(command.pass_env)}" if command.pass_env else ""
    return f"run_{name}: {_shown((command.command, *command.args))}{gets}"


def _named(settings: SandboxSettings) -> list[Key]:
    return [
        *(("env", name) for name in settings.env.sources),
        *(("commands", name) for name in settings.commands.own),
    ]


def _lines(name: str, before: Value | None, after: Value | None) -> list[str]:
    if isinstance(before or after, tuple) and not name.endswith(".args"):
        old, new = _entries(before), _entries(after)
        gone = [f'- {name}: "{spelled(text)}"' for text in old if text not in new]
        return gone + [f'+ {name}: "{spelled(text)}"' for text in new if text not in old]
    lines = [] if before is None else [f"- {name} = {_shown(before)}"]
    return lines if after is None else [*lines, f"+ {name} = {_shown(after)}"]


def _entries(value: Value | None) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _shown(value: Value) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{spelled(text)}"' for text in value) + "]"
    return f'"{spelled(value)}"' if isinstance(value, str) else json.dumps(value)
