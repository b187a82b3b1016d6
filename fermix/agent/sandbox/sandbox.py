"""What a tool may open and where a command may run, by the turn it runs in. Calls block shortly: use Workers.

Tools reach files through here and never by a name of their own. A path is resolved, then decided on, then opened
without following any link, then looked at again through its descriptor.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fermix.agent.sandbox.environment import command_environment
from fermix.agent.sandbox.roots import Identity, Root, Roots, real
from fermix.agent.sandbox.settings import SandboxSettings
from fermix.agent.turn import Turn
from fermix.errors import OutsideSandbox
from fermix.home import Home
from fermix.native.opener import open_beneath
from fermix.trust import Trust

LOCAL_CHANNELS = frozenset({"cli", "daemon"})  # the names our own socket gives; no remote channel has an origin


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A regular file, open; who asked for it closes `descriptor`. `path` is its real path."""

    path: Path
    descriptor: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class OpenedFolder:
    """A folder, open; who asked for it closes `descriptor`. A walk passes by what is in `closed`."""

    path: Path
    descriptor: int
    closed: frozenset[Identity]


class Sandbox:
    """The policy of one daemon. Knows nothing of any tool."""

    def __init__(
        self, settings: SandboxSettings, home: Home, launch_dir: Path, user_home: Path, environ: Mapping[str, str]
    ) -> None:
        """Raises: ConfigError when a grant is one that must never be given."""
        self._roots = Roots(settings, home, launch_dir, user_home)
        self._workspace = home.workspace
        self._environment = command_environment(environ)

    def roots_for(self, turn: Turn) -> tuple[Root, ...]:
        """Return what is open to this turn, the workspace first."""
        cwd = _request_cwd(turn)
        return self._roots.standing() if cwd is None else self._roots.with_request(cwd)

    def working_dir(self, turn: Turn) -> Path:
        """Return where relative paths and commands start: the operator's own folder if open, else the workspace."""
        cwd = _request_cwd(turn)
        if cwd is None or not (folder := real(cwd)).is_dir():
            return self._workspace
        try:
            self._roots.admit(folder, self.roots_for(turn))
        except OutsideSandbox:
            return self._workspace  # a folder outside is no fault of the turn
        return folder

    def environment(self, turn: Turn) -> dict[str, str]:
        """Return the variables of a command."""
        return dict(self._environment)

    def resolve(self, turn: Turn, path: str) -> Path:
        """Return the real path that a text means in this turn. Raises: OutsideSandbox when it is not open to it."""
        found = self._real(turn, path)
        self._roots.admit(found, self.roots_for(turn))
        return found

    def open_file(self, turn: Turn, path: str) -> OpenedFile:
        """Open a regular file for reading. Raises: OutsideSandbox, IsADirectoryError, OSError."""
        found, descriptor = self._open(turn, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            state = os.fstat(descriptor)
            if stat.S_ISDIR(state.st_mode):
                raise IsADirectoryError(found)
            if not stat.S_ISREG(state.st_mode):
                raise OutsideSandbox(str(found), "neither a file nor a folder")
            if (state.st_dev, state.st_ino) in self._roots.closed_identities():
                raise OutsideSandbox(str(found), "protected, no tool may touch it")
        except BaseException:
            os.close(descriptor)
            raise
        return OpenedFile(found, descriptor, state.st_size)

    def open_folder(self, turn: Turn, path: str) -> OpenedFolder:
        """Open a folder to walk through. Raises: OutsideSandbox, NotADirectoryError, OSError."""
        found, descriptor = self._open(turn, path, os.O_RDONLY | os.O_DIRECTORY)
        return OpenedFolder(found, descriptor, self._roots.closed_identities())

    def _open(self, turn: Turn, path: str, flags: int) -> tuple[Path, int]:
        found = self._real(turn, path)
        root = self._roots.admit(found, self.roots_for(turn))
        return found, open_beneath(root.path, found.relative_to(root.path), flags)

    def _real(self, turn: Turn, path: str) -> Path:
        return real(self.working_dir(turn) / self._roots.expand(path))


def _request_cwd(turn: Turn) -> Path | None:
    """The folder an operator speaks from on this machine; None for everybody else."""
    message = turn.message
    if turn.trust is not Trust.OPERATOR or message.channel not in LOCAL_CHANNELS or message.origin is None:
        return None
    return message.origin.cwd
