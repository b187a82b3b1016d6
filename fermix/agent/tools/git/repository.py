"""Find the working copy that a folder belongs to, and refuse one that leads out of the folders open to the turn.

Git's own search for it is never used: what is found here is stated to git. Blocking, shortly: use Workers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from fermix.agent.sandbox import Sandbox
from fermix.agent.turn import Turn
from fermix.errors import Refused

FILE_BYTES = 65_536
MOST_STORES = 32  # object stores that borrow from each other
GITLINK = b"\0\0\xe0\0"  # the mode of a submodule in an index
BLOCK_BYTES = 4_194_304
KEPT = (
    "HEAD", "branches", "commondir", "config", "config.worktree", "index", "info", "logs", "modules", "objects",
    "packed-refs", "refs", "remotes", "shallow", "worktrees",
)  # fmt: skip
"""What git reads in its folder; each could be a link to somewhere else."""
OLD_REMOTES = ("branches", "remotes")
"""Folders in which git looked for remotes before it had settings for them, and still does."""


@dataclass(frozen=True, slots=True)
class Eyes:
    """What a turn may look at. Files are opened as every tool opens them, never by a name that was judged before."""

    sandbox: Sandbox
    turn: Turn

    def admit(self, place: Path) -> Path:
        """Return the real path. Raises: OutsideSandbox."""
        return self.sandbox.find(self.turn, str(place)).path

    def text(self, place: Path) -> str:
        """Return what a small file holds. Raises: OutsideSandbox, Refused, OSError."""
        with self._open(place) as file:
            data = file.read(FILE_BYTES + 1)
        if len(data) > FILE_BYTES:
            raise _refused(f"{place} is larger than {FILE_BYTES} bytes")
        return os.fsdecode(data)

    def holds(self, place: Path, mark: bytes) -> bool:
        """Look for a few bytes in a file of any size. Raises: OutsideSandbox, OSError."""
        end = b""
        with self._open(place) as file:
            for block in iter(partial(file.read, BLOCK_BYTES), b""):
                if mark in end + block:
                    return True
                end = block[1 - len(mark) :]
        return False

    def _open(self, place: Path) -> BinaryIO:
        return os.fdopen(self.sandbox.find(self.turn, str(place)).open_file(), "rb")


@dataclass(frozen=True, slots=True)
class Repository:
    """A working copy, all by real paths: its top, its own git folder, the one it shares with other working copies (else
    the same), and the folder that was asked about.
    """

    top: Path
    git: Path
    shared: Path
    folder: Path

    def variables(self) -> dict[str, str]:
        """Return what states it to git, so that nothing is searched for and `core.worktree` counts for nothing."""
        return {"GIT_DIR": str(self.git), "GIT_WORK_TREE": str(self.top)}

    def may_hold_submodules(self, eyes: Eyes) -> bool:
        """Say whether its index can name a submodule; four bytes that look like it say so as well.

        Raises: OutsideSandbox, OSError.
        """
        files = (self.git / "index", *self.git.glob("sharedindex.*"))
        return any(eyes.holds(path, GITLINK) for path in files if path.is_file())


def find_repository(sandbox: Sandbox, turn: Turn, path: str) -> Repository:
    """Raises: OutsideSandbox when any part of it leads elsewhere, Refused when there is none, OSError."""

    eyes = Eyes(sandbox, turn)
    folder = sandbox.find(turn, path).path
    if not folder.is_dir():
        raise _refused(f"{path} is not a folder; give the folder of the working copy as repo")
    for top in (folder, *folder.parents):
        if os.path.lexists(top / ".git"):
            git = _git_folder(eyes.admit(top), eyes)
            return Repository(top, git, _check_parts(git, eyes), folder)
    raise _refused(f"{path} is not in a git working copy; give one as repo, or make one with `git init` by shell")


def check_old_remotes(repository: Repository) -> None:
    """Raises: Refused when a remote stands in a file of its own, where no setting tells its address; OSError."""
    for name in OLD_REMOTES:
        place = repository.shared / name
        if place.is_dir() and any(place.iterdir()):
            raise _refused(f"{place} holds a remote in the old way, whose address cannot be shown; the owner pulls it")


def _git_folder(top: Path, eyes: Eyes) -> Path:
    """Return the real `.git`: a folder, or what a file of a worktree or submodule says, e.g. "gitdir: ../.git/x"."""
    place = eyes.admit(top / ".git")
    if not place.is_dir():
        mark, _, target = (eyes.text(place) if place.is_file() else "").partition(":")
        if mark != "gitdir":
            raise _refused(f"{place} is not what git writes there")
        place = eyes.admit(top / target.strip())
    if not (place / "HEAD").exists() or not place.is_dir():
        raise _refused(f"{place} is not a git folder: it has no HEAD")
    return place


def _check_parts(git: Path, eyes: Eyes) -> Path:
    """Return the git folder that it shares. Raises: OutsideSandbox when a part of either, or an object store that they
    borrow from, lies elsewhere.
    """
    common = git / "commondir"
    shared = eyes.admit(git / eyes.text(common).strip()) if common.is_file() else git
    for place in dict.fromkeys((git, shared)):
        for name in KEPT:
            if os.path.lexists(place / name):
                eyes.admit(place / name)
    waiting, seen = [shared / "objects"], set[Path]()
    while waiting and len(seen) < MOST_STORES:
        store = eyes.admit(waiting.pop())
        if store not in seen:
            seen.add(store)
            waiting += _lenders(store, eyes)
    if waiting:
        raise _refused(f"{shared} borrows objects from more than {MOST_STORES} other places")
    return shared


def _lenders(store: Path, eyes: Eyes) -> list[Path]:
    """Return the object stores that one borrows from; a name quoted as in C is refused."""
    alternates = store / "info/alternates"
    if not alternates.is_file():
        return []
    lines = [line for line in eyes.text(alternates).split("\n") if line and not line.startswith("#")]
    if any(line.startswith('"') for line in lines):
        raise _refused(f"{alternates} holds a quoted name, which this tool does not read")
    return [store / line for line in lines]


def _refused(reason: str) -> Refused:
    return Refused(reason, user_text=reason)
