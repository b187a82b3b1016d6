"""Which folders a turn may touch, decided on real paths. Used by the facade `sandbox.py`.

The order never changes: protected, then blocked, then inside a root, else outside. Protected and blocked places
are also known by their identity on disk, so another spelling of a name (letter case, a hard link) is no way in.
Tools open paths by this policy; `walls.py` draws the walls of commands from it.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fermix.agent.sandbox.closed import Closed, Identity, identities
from fermix.agent.sandbox.protected import folded, in_user_home, of_fermix, of_the_system, read_by_a_session
from fermix.agent.sandbox.settings import SandboxSettings
from fermix.errors import ConfigError, OutsideSandbox
from fermix.home import Home
from fermix.visible import spelled

MOST_LINKS = 64
MOST_PATH_CHARS = 4_095  # the system takes no more; and all that lies above a path is looked at, one by one
SHOWN_CHARS = 100  # of one that is too long
Source = Literal["workspace", "launch", "request", "grant", "home"]
PROTECTED = "protected, no tool may touch it"
ETC = Path("/etc")  # the one system folder that holds secrets
OUTDATED_S = 1.0  # what is made meanwhile is known by its name, and as a hard link by `closed.py`


@dataclass(frozen=True, slots=True)
class Root:
    """A folder with all below it; `path` is real, `source` says why it is open."""

    path: Path
    source: Source


@dataclass(frozen=True, slots=True)
class _Places:
    """Some paths, by name and by what they are on disk at one moment."""

    names: frozenset[str]
    identities: frozenset[Identity]

    @classmethod
    def of(cls, paths: Iterable[Path]) -> _Places:
        names = frozenset(map(str, paths))
        return cls(names, identities(names))


@dataclass(frozen=True, slots=True)
class _Line:
    """A path and all above it. Strings, since every call of a file tool asks."""

    names: frozenset[str]
    identities: frozenset[Identity]

    @classmethod
    def of(cls, path: Path) -> _Line:
        names = frozenset(map(str, (path, *path.parents)))
        return cls(names, identities(names))

    def with_last(self, path: Path) -> _Line:
        """Return the line of something in the folder that this one leads to."""
        name = str(path)
        return _Line(self.names | {name}, self.identities | identities((name,)))

    def touches(self, places: _Places) -> bool:
        return not (self.identities.isdisjoint(places.identities) and self.names.isdisjoint(places.names))


@dataclass(frozen=True, slots=True)
class _Known:
    """What the policy compares with, at one moment. `closed` is what a walk passes by."""

    protected: _Places
    blocked: _Places
    home: _Places
    to_look_at: _Places
    closed: frozenset[Identity]
    lines: dict[Path, _Line] = field(default_factory=dict[Path, "_Line"])

    def line_to(self, path: Path) -> _Line:
        """Look at a path as it is now, and at the folders above it as they were at this moment."""
        if (above := self.lines.get(path.parent)) is None:
            above = self.lines[path.parent] = _Line.of(path.parent)
        return above.with_last(path)


class Roots:
    """The standing decision: made once at start, asked for every path."""

    def __init__(self, settings: SandboxSettings, home: Home, launch_dir: Path, user_home: Path) -> None:
        """Raises: ConfigError when a grant is one that must never be given."""
        self._mode = settings.mode
        self._user_home = real(user_home)
        self._home = real(home.root)
        self._to_look_at = (real(home.workspace), real(home.skills))
        self._private = tuple(real(path) for path in in_user_home(self._user_home))
        self._protected = (*self._private, *(real(path) for path in (*of_fermix(home), *of_the_system())))
        self._names = tuple(f"{folded(path)}/" for path in self._private)
        self._fixed = (real(home.skills), *(real(path) for path in read_by_a_session(self._user_home)))
        self._blocked = tuple(real(self.expand(text)) for text in settings.blocked_roots)
        grants = tuple(self._grant(text, home) for text in settings.allowed_roots)
        self._known, self._known_until = self._look(), 0.0
        self._standing = tuple(self._standing_roots(home, real(launch_dir), grants))

    def expand(self, text: str) -> Path:
        """Put the real home in place of a leading `~`."""
        return self._user_home / text[2:] if text in ("~", "~/") or text.startswith("~/") else Path(text)

    def standing(self) -> tuple[Root, ...]:
        """Return the roots that every turn has, guests included."""
        return self._standing

    def with_request(self, cwd: Path) -> tuple[Root, ...]:
        """Return the roots of an operator who speaks from the folder `cwd` on this machine."""
        if self._mode == "standard" and self.is_project(folder := real(cwd)):
            return (*self._standing, Root(folder, "request"))
        return self._standing

    def is_project(self, folder: Path) -> bool:
        """Say whether a real folder may become a root by standing in it: strictly inside the home, not closed."""
        return folder.is_dir() and self._user_home in folder.parents and self.why_closed(folder) is None

    def admit(self, path: Path, roots: Iterable[Root]) -> Root:
        """Return the outermost root that holds a real path: above it no tool changes anything, so that its own name is
        as safe as what is opened below it. Raises: OutsideSandbox with what is open instead.
        """
        open_roots = tuple(roots)
        if (reason := self.why_closed(path)) is not None:
            raise OutsideSandbox(str(path), reason)
        holding = [root for root in open_roots if path.is_relative_to(root.path)]
        if holding:
            return min(holding, key=lambda root: len(root.path.parts))
        folders = dict.fromkeys(str(root.path) for root in open_roots)  # one folder may be open for two reasons
        raise OutsideSandbox(str(path), f"only these folders are open: {', '.join(folders)}")

    def how_to_open(self, folder: Path) -> str:
        """Say what an operator can do who speaks from a real folder outside every root."""
        whole = folder not in (self._user_home, *self._user_home.parents)
        grant = f"open {'it' if whole else 'a folder in it'} with `fermix grant path`"
        return grant if self._mode == "strict" else f"run from a folder inside your home, or {grant}"

    def why_closed(self, path: Path) -> str | None:
        """Say why nobody may touch a real path, or None."""
        known = self._now_known()
        line = known.line_to(path)
        if line.touches(known.protected) or f"{folded(path)}/".startswith(self._names):
            return PROTECTED
        if line.touches(known.home) and not line.touches(known.to_look_at):
            return PROTECTED  # the copy that an owner made, what a crash left behind: nobody can list what has a key
        if line.touches(known.blocked):
            return "inside a folder that the owner blocked"
        return None

    def why_fixed(self, path: Path) -> str | None:
        """Say why no tool may change a real path that it may look at, or None."""
        if _Line.of(path).touches(_Places.of(self._fixed)):
            return "it decides what the agent, or a session of its owner, does next; no tool may change it"
        return None

    def why_never_granted(self, path: Path) -> str | None:
        """Say why a real path must not be granted in any case, or None."""
        homes = (self._user_home, *self._user_home.parents, self._home, *self._home.parents)
        if path in homes or _Line.of(path).touches(_Places.of(self._protected)):
            return "it is, or holds, a home or a protected path"
        return None

    def hidden(self) -> tuple[Path, ...]:
        """Return what no command may see, though it lies inside an open folder: all of our own home but its roots."""
        system = frozenset(map(real, of_the_system()))
        return (self._home, *(path for path in self._protected if path not in system), *self._blocked)

    def closed(self) -> Closed:
        """Return what a walk through a root must pass by, other names of it included."""
        known = self._now_known()
        return Closed(known.closed, (*self._private, ETC, *self._blocked), self._kept)

    def _kept(self) -> tuple[Path, ...]:
        try:
            return tuple(path for path in self._home.iterdir() if path not in self._to_look_at)
        except FileNotFoundError:
            return ()  # a home that is not prepared yet holds nothing

    def _now_known(self) -> _Known:
        if time.monotonic() > self._known_until:
            self._known, self._known_until = self._look(), time.monotonic() + OUTDATED_S
        return self._known

    def _look(self) -> _Known:
        protected, blocked = _Places.of(self._protected), _Places.of(self._blocked)
        closed = protected.identities | blocked.identities | identities(self._kept())
        return _Known(protected, blocked, _Places.of((self._home,)), _Places.of(self._to_look_at), closed)

    def _grant(self, text: str, home: Home) -> Path:
        path = real(self.expand(text))
        if (reason := self.why_never_granted(path)) is not None:
            problem = f"{text} must not be granted: {reason}"
            raise ConfigError(problem, path=str(home.config), key="sandbox.allowed_roots")
        return path

    def _standing_roots(self, home: Home, launch_dir: Path, grants: tuple[Path, ...]) -> Iterable[Root]:
        yield Root(real(home.workspace), "workspace")
        if self._mode == "standard" and self.is_project(launch_dir):
            yield Root(launch_dir, "launch")
        if self._mode == "open":
            yield Root(self._user_home, "home")
        yield from (Root(path, "grant") for path in grants)


def real(path: Path) -> Path:
    """Follow every link; a part that does not exist stays as it is.

    Raises: OutsideSandbox when this is no possible name, leads through more than 64 links, or changes meanwhile.
    """
    if len(text := str(path)) > MOST_PATH_CHARS:
        raise OutsideSandbox(f"{text[:SHOWN_CHARS]}…", f"a path of {len(text)} characters is too long")
    try:
        return Path(_resolved(str(Path.cwd() / path if not path.is_absolute() else path)))
    except ValueError as error:
        raise OutsideSandbox(spelled(str(path)), "not a possible file name") from error
    except OSError as error:
        reason = "too many links" if error.errno == errno.ELOOP else "changed while it was looked at"
        raise OutsideSandbox(str(path), reason) from error


def _resolved(path: str) -> str:
    """Walk a path from the top, one part after the other, with every link put in its place.

    The standard library's own way takes a ring of links for names that do not exist.
    """
    here, waiting, links = "", path.split("/")[::-1], 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            here = here.rpartition("/")[0]
            continue
        target = _link(f"{here}/{part}")
        if target is None:
            here = f"{here}/{part}"
            continue
        links += 1
        if links > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        here = "" if target.startswith("/") else here
        waiting += target.split("/")[::-1]
    return here or "/"


def _link(path: str) -> str | None:
    """Return where a link leads, None for anything else and for what cannot be looked at."""
    try:
        return os.readlink(path)  # noqa: PTH115 - a Path for each part would cost four times as much
    except OSError:
        return None
