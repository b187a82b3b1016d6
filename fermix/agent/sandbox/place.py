"""A path that a turn may touch, and how it is opened or replaced. Made by the facade `sandbox.py`, used by the tools.

What must stay true: everything happens by descriptors below the root and no link is followed, so what was decided on
is what is touched; what lies behind a name is judged once more on its descriptor; a file is written whole or not at
all, and never one that was changed since it was looked at.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fermix.agent.sandbox.closed import Closed
from fermix.agent.sandbox.roots import PROTECTED
from fermix.errors import OutsideSandbox, Unusable
from fermix.native.opener import make_folders_beneath, open_beneath

FOLDER = os.O_RDONLY | os.O_DIRECTORY
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE_MODE = 0o666  # less what the umask takes
PERMISSIONS = stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO  # a program's set-user-ID bit must not pass to new content

_replacing = threading.Lock()  # between a last look at a name and its rename no other turn of ours gets in


class Changed(Unusable):
    """Somebody else wrote the file after it was looked at, so it was left alone."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was changed", user_text=f"{path} was changed by somebody else meanwhile; read it again"
        )


@dataclass(frozen=True, slots=True)
class Place:
    """A path that a turn may touch: `path` is real and lies below `root`. A walk passes by what is in `closed`.

    A link that has appeared on the way since is not followed: OutsideSandbox.
    """

    root: Path
    path: Path
    closed: Closed

    def open_folder(self) -> int:
        """Return a descriptor of the folder. Raises: OutsideSandbox, NotADirectoryError, OSError."""
        return open_beneath(self.root, self.path.relative_to(self.root), FOLDER)

    def open_file(self) -> int:
        """Return a descriptor for reading a regular file. Raises: OutsideSandbox, IsADirectoryError, OSError."""
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = open_beneath(self.root, self.path.relative_to(self.root), flags)
        with ExitStack() as undo:
            undo.callback(os.close, descriptor)
            self._check_file(os.fstat(descriptor))
            undo.pop_all()
        return descriptor

    def write(self, data: bytes, *, make_folders: bool = False) -> bool:
        """Make the file, or replace what it held and keep its mode; say whether it is new. Blocking.

        Raises: OutsideSandbox, Changed, IsADirectoryError, OSError; then nothing has changed but folders made.
        """
        with self._holder(make_folders=make_folders) as holder:
            seen = self._look(holder)
            self._replace(holder, seen, data)
        return seen is None

    def rewrite(self, seen: os.stat_result, data: bytes) -> None:
        """Replace a file that still is as it was when `seen` was taken from its descriptor. Raises: as `write`."""
        with self._holder() as holder:
            self._replace(holder, seen, data)

    @contextmanager
    def _holder(self, *, make_folders: bool = False) -> Generator[int]:
        """Open the folder that the name stands in."""
        if self.path == self.root:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self.path))
        relative = self.path.parent.relative_to(self.root)
        opened = (
            make_folders_beneath(self.root, relative) if make_folders else open_beneath(self.root, relative, FOLDER)
        )
        try:
            if self.closed.holds(os.fstat(opened)):
                raise OutsideSandbox(str(self.path), PROTECTED)
            yield opened
        finally:
            os.close(opened)

    def _look(self, holder: int) -> os.stat_result | None:
        """Return what the name means, None when nothing. Raises: as `write` for what must not be replaced."""
        try:
            state = os.stat(self.path.name, dir_fd=holder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(state.st_mode):
            raise OutsideSandbox(str(self.path), "a link on the way leads elsewhere")
        self._check_file(state)
        if not os.access(self.path.name, os.W_OK, dir_fd=holder, effective_ids=True, follow_symlinks=False):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self.path))
        return state

    def _replace(self, holder: int, seen: os.stat_result | None, data: bytes) -> None:
        temporary = f".fermix-{secrets.token_hex(8)}.tmp"  # a name of its own: one made from a long name is too long
        descriptor = os.open(temporary, NEW_FILE, _mode(seen), dir_fd=holder)
        with ExitStack() as undo:
            undo.callback(os.unlink, temporary, dir_fd=holder)
            with os.fdopen(descriptor, "wb") as file:
                _take_over(file.fileno(), seen)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            with _replacing:
                if not _is_same(self._look(holder), seen):
                    raise Changed(self.path)
                os.rename(temporary, self.path.name, src_dir_fd=holder, dst_dir_fd=holder)
            undo.pop_all()
        with suppress(OSError):  # some file systems cannot sync a folder (DB-09); the file itself is safe
            os.fsync(holder)

    def _check_file(self, state: os.stat_result) -> None:
        if stat.S_ISDIR(state.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(self.path))
        if not stat.S_ISREG(state.st_mode):
            raise OutsideSandbox(str(self.path), "neither a file nor a folder")
        if self.closed.holds(state):
            raise OutsideSandbox(str(self.path), PROTECTED)


def _mode(seen: os.stat_result | None) -> int:
    return NEW_FILE_MODE if seen is None else seen.st_mode & PERMISSIONS


def _take_over(descriptor: int, seen: os.stat_result | None) -> None:
    """Give a file the owner and the mode of the one that it will replace; until then it has less, never more."""
    if seen is None:
        return
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (seen.st_uid, seen.st_gid):
        os.fchown(descriptor, seen.st_uid, seen.st_gid)
    os.fchmod(descriptor, seen.st_mode & PERMISSIONS)


def _is_same(now: os.stat_result | None, seen: os.stat_result | None) -> bool:
    if now is None or seen is None:
        return now is seen
    return _version(now) == _version(seen)


def _version(state: os.stat_result) -> tuple[int, ...]:
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
