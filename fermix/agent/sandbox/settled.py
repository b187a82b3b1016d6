"""What a change makes of the policy's settings, and whether anything is gained by it. Touches nothing. Blocking.

A change that must not or need not be made is Refused, with a sentence for the owner.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from pydantic import ValidationError

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
    Target,
)
from fermix.agent.sandbox.environment import Variables
from fermix.agent.sandbox.name_rules import COMMAND_NAME, why_never_passed, why_no_command
from fermix.agent.sandbox.profiles import PRESETS
from fermix.agent.sandbox.programs import NoProgram, find_program, is_changeable
from fermix.agent.sandbox.roots import Roots, real
from fermix.agent.sandbox.sandbox import Sandbox
from fermix.agent.sandbox.settings import CommandSettings, SandboxSettings
from fermix.errors import Refused
from fermix.visible import spelled

Settled = tuple[SandboxSettings, Target | None]


def settled(change: Change, sandbox: Sandbox) -> Settled:
    """Return the settings after a change, and the file it is about. Raises: Refused, OSError."""
    match change:
        case GrantPath() | RevokePath() | SetMode():
            return _roots(change, sandbox)
        case GrantEnv() | SetEnv() | RevokeEnv() | DenyEnv():
            return _env(change, sandbox)
        case _:
            return _commands(change, sandbox)


def gains(before: SandboxSettings, after: SandboxSettings, variables: Variables) -> bool:
    """Say whether commands gain a variable, a helper, a preset or a program. A profile offers only what was gained."""
    return bool(
        _variables(after, variables) - _variables(before, variables)
        or set(after.env.sources.items()) - set(before.env.sources.items())
        or set(after.commands.presets) - set(before.commands.presets)
        or _enabled(after) - _enabled(before)
    )


def refused(reason: str) -> Refused:
    """Make a refusal whose reason is a sentence."""
    return Refused(reason, user_text=reason[0].upper() + reason[1:] + ".")


def _roots(change: GrantPath | RevokePath | SetMode, sandbox: Sandbox) -> Settled:
    settings = sandbox.settings
    roots = sandbox.roots_under(settings)
    match change:
        case GrantPath(path):
            folder = _folder_to_open(roots, path)
            after = _made(settings, {"allowed_roots": (*settings.allowed_roots, str(folder))})
            return after, Target(str(folder), _identity(folder))
        case RevokePath(path):
            folder_text = _granted(roots, settings, path)
            kept = tuple(text for text in settings.allowed_roots if _real_text(roots, text) != folder_text)
            return _made(settings, {"allowed_roots": kept}), Target(folder_text, None)
        case SetMode(mode):
            if mode == settings.mode:
                raise refused(f"the mode is {mode} already")
            return _made(settings, {"mode": mode}), None


def _folder_to_open(roots: Roots, path: str) -> Path:
    stated = roots.expand(path)
    if not stated.is_absolute():
        raise refused("give the whole path, from / or ~/ on")
    folder = real(stated)
    shown = spelled(str(folder))
    if not os.fsencode(folder).decode("utf-8", "replace") == str(folder):
        raise refused(f'"{shown}" is not named in UTF-8, so config.toml cannot hold it')
    if not folder.is_dir():
        raise refused(f'"{shown}" is not a folder')
    if (reason := roots.why_closed(folder) or roots.why_never_granted(folder)) is not None:
        raise refused(f'"{shown}" cannot be granted: {reason}')
    if any(folder.is_relative_to(root.path) for root in roots.standing()):
        raise refused(f'"{shown}" is open already')
    return folder


def _granted(roots: Roots, settings: SandboxSettings, path: str) -> str:
    stated = roots.expand(path)
    wanted = str(real(stated)) if stated.is_absolute() else path
    if wanted not in {_real_text(roots, text) for text in settings.allowed_roots}:
        raise refused(f'there is no grant for "{spelled(path)}"; `/sandbox explain` lists them')
    return wanted


def _real_text(roots: Roots, text: str) -> str:
    return str(real(roots.expand(text)))


def _env(change: GrantEnv | SetEnv | RevokeEnv | DenyEnv, sandbox: Sandbox) -> Settled:
    settings, name = sandbox.settings, change.name
    env = settings.env
    if (reason := why_never_passed(name)) is not None:
        raise refused(f'"{spelled(name)}" {reason}')
    allowed = {"allow": (*_without(env.allow, name), name), "deny": _without(env.deny, name)}
    match change:
        case GrantEnv():
            if name in env.allow and name not in env.deny:
                raise refused(f"{name} is allowed already")
            return _with_env(settings, allowed), None
        case SetEnv(_, argv):
            program = _helper(argv, sandbox)
            source = {"source": "command", "command": str(program), "args": argv[1:]}
            return _with_env(settings, {**allowed, name: source}), Target(str(real(program)), _identity(program))
        case DenyEnv():
            if name in env.deny:
                raise refused(f"{name} is denied already")
            return _with_env(settings, {"allow": _without(env.allow, name), "deny": (*env.deny, name)}), None
        case RevokeEnv():
            return _revoked_env(name, sandbox), None


def _revoked_env(name: str, sandbox: Sandbox) -> SandboxSettings:
    settings = sandbox.settings
    env = settings.env
    if name not in env.allow and name not in env.sources:
        raise refused(f"{spelled(name)} is not allowed by name; `/sandbox env` lists what is")
    after = _with_env(settings, {"allow": _without(env.allow, name)}, drop=name)
    if sandbox.variables.passes(name, after.env):  # all are, or every command gets it
        return _with_env(after, {"deny": (*env.deny, name)})
    return after


def _helper(argv: tuple[str, ...], sandbox: Sandbox) -> Path:
    program = _program(argv[0], sandbox)
    if is_changeable((str(program), *argv[1:]), [root.path for root in sandbox.standing()]):
        raise refused("this program lies in a folder that commands may change, and it would run outside of their walls")
    return program


def _commands(
    change: SetProfile | EnablePreset | DisablePreset | GrantCommand | RevokeCommand, sandbox: Sandbox
) -> Settled:
    settings = sandbox.settings
    presets = settings.commands.presets
    match change:
        case SetProfile(profile):
            if profile == settings.commands.profile:
                raise refused(f"the profile is {profile} already")
            return _with_commands(settings, profile=profile), None
        case EnablePreset(preset):
            if preset in presets:
                raise refused(f"the preset {preset} is on already")
            return _with_commands(settings, presets=(*presets, preset)), None
        case DisablePreset(preset):
            if preset not in presets:
                raise refused(f"the preset {preset} is off already")
            return _with_commands(settings, presets=_without(presets, preset)), None
        case GrantCommand():
            return _granted_command(change, sandbox)
        case RevokeCommand(name):
            return _revoked_command(name, settings), None


def _granted_command(change: GrantCommand, sandbox: Sandbox) -> Settled:
    settings, name = sandbox.settings, change.name
    if COMMAND_NAME.fullmatch(name) is None:
        raise refused(f'"{spelled(name)}" is no name of a command: lower-case letters, digits and _, at most 32')
    if change.argv:
        program = _program(change.argv[0], sandbox)
        if (reason := why_no_command(change.argv[0]) or why_no_command(str(real(program)))) is not None:
            raise refused(f"this cannot be a command: {reason}")
        command = {"command": str(program), "args": change.argv[1:]}
        if _same_command(settings.commands.own.get(name), command):
            raise refused(f"the command {name} is on already")
        return _with_commands(settings, **{name: command}), Target(str(real(program)), _identity(program))
    defined = settings.commands.own.get(name)
    if defined is None:
        raise refused(f"there is no command {name} yet; write `grant command {name} -- PROGRAM ARGUMENTS`")
    if defined.enabled:
        raise refused(f"the command {name} is on already")
    program = _program(defined.command, sandbox)
    on = {**defined.model_dump(), "enabled": True}
    return _with_commands(settings, **{name: on}), Target(str(real(program)), _identity(program))


def _same_command(defined: CommandSettings | None, wanted: Mapping[str, object]) -> bool:
    return defined is not None and defined == CommandSettings.model_validate(dict(wanted))


def _revoked_command(name: str, settings: SandboxSettings) -> SandboxSettings:
    defined = settings.commands.own.get(name)
    if defined is not None and defined.enabled:
        return _with_commands(settings, **{name: {**defined.model_dump(), "enabled": False}})
    holder = next((preset for preset in settings.commands.presets if name in PRESETS[preset]), None)
    if holder is not None:
        raise refused(f"{name} belongs to the preset {holder}; turn that off with `sandbox commands disable {holder}`")
    raise refused(f'there is no command "{spelled(name)}" that is on')


def _program(stated: str, sandbox: Sandbox) -> Path:
    try:
        return find_program(stated, sandbox.search_path)
    except NoProgram as error:
        raise refused(spelled(str(error))) from error


def _identity(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_dev, state.st_ino


def _with_env(settings: SandboxSettings, update: Mapping[str, object], drop: str = "") -> SandboxSettings:
    env = {name: value for name, value in settings.env.model_dump().items() if name != drop}
    return _made(settings, {"env": {**env, **update}})


def _with_commands(settings: SandboxSettings, **update: object) -> SandboxSettings:
    return _made(settings, {"commands": {**settings.commands.model_dump(), **update}})


def _made(settings: SandboxSettings, update: Mapping[str, object]) -> SandboxSettings:
    try:
        return SandboxSettings.model_validate({**settings.model_dump(), **update})
    except ValidationError as error:
        reason = error.errors(include_url=False, include_input=False, include_context=False)[0]["msg"]
        raise refused(reason.removeprefix("Value error, ")) from None


def _without(texts: Iterable[str], text: str) -> tuple[str, ...]:
    return tuple(other for other in texts if other != text)


def _variables(settings: SandboxSettings, variables: Variables) -> set[str]:
    return {*variables.names(settings.env), *variables.base(settings.env)}


def _enabled(settings: SandboxSettings) -> set[tuple[str, CommandSettings]]:
    return {(name, command) for name, command in settings.commands.own.items() if command.enabled}
