"""The owner's words for a change, the same behind a slash and on the command line.

grant path FOLDER | grant env NAME | grant command NAME [-- PROGRAM ARGUMENT…], the same with revoke
sandbox mode MODE | sandbox env allow|deny|unset NAME | sandbox env set NAME -- PROGRAM ARGUMENT…
sandbox commands profile PROFILE | sandbox commands enable|disable PRESET
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from fermix.agent.sandbox.changes import (
    Change,
    DenyEnv,
    DisablePreset,
    EnablePreset,
    GrantCommand,
    GrantEnv,
    GrantPath,
    RevokeCommand,
    RevokeEnv,
    RevokePath,
    SetEnv,
    SetMode,
    SetProfile,
)
from fermix.agent.sandbox.settings import FORMER_MODES, FORMER_PROFILES, Mode, Preset, Profile
from fermix.agent.sandbox.settled import refused

MODES: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}
PROFILES: dict[str, Profile] = {profile: profile for profile in get_args(Profile)}
PRESET_NAMES: dict[str, Preset] = {preset: preset for preset in get_args(Preset)}


def read(words: Sequence[str]) -> Change | None:
    """Return what is wanted; None when the words mean no change. Raises: Refused for a name of former times."""
    match list(words):
        case ["grant", *rest]:
            return _grant(rest)
        case ["revoke", *rest]:
            return _revoke(rest)
        case ["sandbox", "mode", mode]:
            _refuse_former("mode", mode, FORMER_MODES)
            return SetMode(MODES[mode]) if mode in MODES else None
        case ["sandbox", "env", *rest]:
            return _env(rest)
        case ["sandbox", "commands", *rest]:
            return _commands(rest)
        case _:
            return None


def _grant(words: list[str]) -> Change | None:
    match words:
        case ["path", path] if path:
            return GrantPath(path)
        case ["env", name]:
            return GrantEnv(name)
        case ["command", name]:
            return GrantCommand(name)
        case ["command", name, "--", *argv] if argv:
            return GrantCommand(name, tuple(argv))
        case _:
            return None


def _revoke(words: list[str]) -> Change | None:
    match words:
        case ["path", path] if path:
            return RevokePath(path)
        case ["env", name]:
            return RevokeEnv(name)
        case ["command", name]:
            return RevokeCommand(name)
        case _:
            return None


def _env(words: list[str]) -> Change | None:
    match words:
        case ["allow", name]:
            return GrantEnv(name)
        case ["deny", name]:
            return DenyEnv(name)
        case ["unset", name]:
            return RevokeEnv(name)
        case ["set", name, "--", *argv] if argv:
            return SetEnv(name, tuple(argv))
        case _:
            return None


def _commands(words: list[str]) -> Change | None:
    match words:
        case ["profile", profile]:
            _refuse_former("profile", profile, FORMER_PROFILES)
            return SetProfile(PROFILES[profile]) if profile in PROFILES else None
        case ["enable", preset] if preset in PRESET_NAMES:
            return EnablePreset(PRESET_NAMES[preset])
        case ["disable", preset] if preset in PRESET_NAMES:
            return DisablePreset(PRESET_NAMES[preset])
        case _:
            return None


def _refuse_former(kind: str, name: str, former: dict[str, str]) -> None:
    if name in former:
        raise refused(f"the {kind} {name} is now called {former[name]}")
