"""Open a path beneath a folder by descriptors, so that swapping a folder or a link meanwhile gains nothing.

The one opener for names that came from a model, a sender or a remote. Callers resolve links first and decide by
the result; here no link is followed at all, so a link that appears after the decision is refused by the kernel.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath

from fermix.errors import OutsideSandbox
from fermix.native.library import native

RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
RESOLVE = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
LEADS_AWAY = (errno.ELOOP, errno.EXDEV, errno.EAGAIN)  # a link; a way out; a rename while the kernel was looking


def open_beneath(root: Path, relative: PurePath, flags: int, mode: int = 0) -> int:
    """Open a path below a folder and return its descriptor, which is not inherited.

    `root` and `relative` hold no links. Raises: OutsideSandbox when a link or `..` leads away; OSError.
    """
    with _told_of_links(root / relative):
        folder = os.open(root, FOLDER_FLAGS)
        try:
            return _open_at(folder, relative, flags, mode)
        finally:
            os.close(folder)


def make_folders_beneath(root: Path, relative: PurePath) -> int:
    """Open a folder below another, making what is missing on the way, and return its descriptor. Raises: as above."""
    with _told_of_links(root / relative):
        here = os.open(root, FOLDER_FLAGS)
        try:
            for part in relative.parts:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=here)
                below = _open_at(here, PurePath(part), os.O_RDONLY | os.O_DIRECTORY, 0)
                os.close(here)
                here = below
        except OSError:
            os.close(here)
            raise
    return here


@contextmanager
def _told_of_links(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in LEADS_AWAY:
            raise OutsideSandbox(str(path), "a link on the way leads elsewhere") from error
        raise


def _open_at(folder: int, relative: PurePath, flags: int, mode: int) -> int:
    try:
        return native.openat2(folder, str(relative), flags, mode, RESOLVE)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        return walk(folder, relative, flags, mode)


def walk(folder: int, relative: PurePath, flags: int, mode: int) -> int:
    """Do the same one component at a time, where the kernel has no openat2 (before Linux 5.6, macOS)."""
    if relative.is_absolute() or ".." in relative.parts:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(relative))
    *above, last = relative.parts or (".",)
    here = os.dup(folder)
    try:
        for part in above:
            below = os.open(part, FOLDER_FLAGS, dir_fd=here)
            os.close(here)
            here = below
        return os.open(last, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=here)
    finally:
        os.close(here)
