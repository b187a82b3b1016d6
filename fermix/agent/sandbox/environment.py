"""Which variables a tool's process sees: an allow list, and what keeps programs from asking a person not there.

Every command gets the base. What the owner allows besides is worked out here for one command (`Variables.wanted`);
the values that helpers print are then asked for by `helper_values.py`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fermix.agent.sandbox.name_rules import CHANNEL_KEYS, DEFAULT_NAMES, names_a_secret, why_never_passed
from fermix.agent.sandbox.programs import NoProgram, find_program, is_changeable, lies_in
from fermix.agent.sandbox.settings import EnvSettings, Source
from fermix.config.secrets import register_passing
from fermix.native.child import child_environment
from fermix.native.program import own_variables

OWN_NAMES = (*DEFAULT_NAMES, "XDG_CACHE_HOME")  # there the frozen program is unpacked already
FOR_HELPERS = (
    *DEFAULT_NAMES,
    *("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "GNUPGHOME"),
    "PASSWORD_STORE_DIR",
)
"""A helper opens the owner's keyring, which it finds by these."""
UNATTENDED = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
}


@dataclass(frozen=True, slots=True)
class Helper:
    """A program of the owner's that prints the value of a variable."""

    name: str
    argv: tuple[str, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one command is to get besides the base: values that are known, helpers to ask, and of what cannot be had
    the reason. `environment` is the whole one of the helpers.
    """

    values: Mapping[str, str] = field(default_factory=dict[str, str])
    helpers: tuple[Helper, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


class Variables:
    """The daemon's environment, and what of it may go on. `key_names` are variables that hold keys of ours."""

    def __init__(self, environ: Mapping[str, str], key_names: Collection[str]) -> None:
        self._environ = environ
        self._keys = frozenset((*key_names, *CHANNEL_KEYS))

    def base(self, env: EnvSettings) -> dict[str, str]:
        """Return what every command gets; no key of ours is in it."""
        kept = child_environment(self._environ, DEFAULT_NAMES)
        elsewhere = {*env.deny, *(name for name, source in env.sources.items() if source.source == "command")}
        return {**{name: value for name, value in kept.items() if name not in elsewhere}, **UNATTENDED}

    def own(self) -> dict[str, str]:
        """Return the whole environment of our own program, where a tool runs it in a process of its own."""
        return {**child_environment(self._environ, OWN_NAMES), **own_variables(self._environ)}

    def of_helpers(self, changeable: Collection[Path]) -> dict[str, str]:
        """Return the whole environment of a helper. Blocking. It finds no program in a folder of `changeable`, whose
        programs a command may have put there.
        """
        kept = child_environment(self._environ, FOR_HELPERS)
        folders = (Path(text) for text in kept.get("PATH", "").split(os.pathsep) if text.startswith("/"))
        return {**kept, "PATH": os.pathsep.join(str(path) for path in folders if not lies_in(path, changeable))}

    def passes(self, name: str, env: EnvSettings) -> bool:
        """Say whether commands may get this variable."""
        if name in env.deny or why_never_passed(name) is not None:
            return False
        inherited = env.mode == "all" and name in self._environ and name not in self._keys
        return inherited or name in env.allow or bool(child_environment({name: ""}, DEFAULT_NAMES))

    def names(self, env: EnvSettings) -> tuple[str, ...]:
        """Return all that commands may get besides the base, in order."""
        inherited = self._environ if env.mode == "all" else ()
        ours = self.base(env)
        return tuple(sorted(name for name in {*env.allow, *inherited} if self.passes(name, env) and name not in ours))

    def state(self, name: str, env: EnvSettings) -> str:
        """Say where the value of a variable comes from, never what it is."""
        source = env.sources.get(name)
        if source is not None and source.command is not None:
            return f"from the helper {source.command}"
        return "from the daemon's environment" if name in self._environ else "has no value: the daemon has none"

    def wanted(self, names: Collection[str], env: EnvSettings, changeable: Collection[Path]) -> Wanted:
        """Sort these variables by where they come from. Blocking. `changeable`: the folders that commands may change.

        What is called like a secret is hidden in outputs from now on.
        """
        values: dict[str, str] = {}
        helpers: list[Helper] = []
        missing: dict[str, str] = {}
        environment = self.of_helpers(changeable)
        for name in names:
            source = env.sources.get(name)
            if not self.passes(name, env):
                missing[name] = f"it is not allowed; the owner can type `/grant env {name}`"
            elif source is not None and source.command is not None:
                try:
                    helpers.append(Helper(name, _argv(source, environment, changeable), source.timeout_ms / 1_000))
                except NoProgram as error:
                    missing[name] = f"its helper cannot be run: {error}"
            elif (value := self._environ.get(name)) is None:
                missing[name] = "the daemon was started without it"
            else:
                values[name] = value
                if names_a_secret(name):
                    register_passing(name, value)
        return Wanted(values, tuple(helpers), missing, environment)


def _argv(source: Source, environment: Mapping[str, str], changeable: Collection[Path]) -> tuple[str, ...]:
    """Return a helper's command line. Raises: NoProgram, also once a command could have put another in its place."""
    argv = (str(find_program(source.command or "", environment["PATH"])), *source.args)
    if is_changeable(argv, changeable):
        raise NoProgram("it lies in a folder that commands may change")
    return argv
