"""What lies behind a closed door, known by its identity on disk. Used by `place.py` and `walk.py`.

A name of a closed file that stands in an open folder is a hard link. Nothing but the identity tells it, and only the
closed folders know which identities they hold; they are asked only about a file that has a second name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

Identity = tuple[int, int]  # device and inode

MOST_NAMES = 100_000  # in closed folders; a tenth of a second of looking


class Closed:
    """The identities that a turn must pass by, and those of all files below some `folders`.

    They are looked up once, when the first file with a second name is met: made anew for each call of a tool.
    """

    def __init__(
        self, known: frozenset[Identity], folders: tuple[Path, ...], more: Callable[[], tuple[Path, ...]] = tuple
    ) -> None:
        """`more` gives further folders, and files, when they are needed."""
        self.known = known
        self._places = folders
        self._more = more
        self._inside: frozenset[int] | None = None
        self._is_known = False

    @property
    def places(self) -> tuple[Path, ...]:
        """What holds the files that no other name may lead to."""
        return (*self._places, *self._more())

    def holds(self, state: os.stat_result) -> bool:
        """Say whether this is closed; also when there is too much to tell."""
        if (state.st_dev, state.st_ino) in self.known:
            return True
        return state.st_nlink > 1 and stat.S_ISREG(state.st_mode) and self._is_inside(state.st_ino)

    def _is_inside(self, inode: int) -> bool:
        """Two disks may give the same number: a file that is closed by mistake, never one that is open by mistake."""
        if not self._is_known:
            self._inside, self._is_known = _inodes_below(self.places), True
        return self._inside is None or inode in self._inside


def identities(paths: Iterable[Path | str]) -> frozenset[Identity]:
    """Return what paths are on disk, links not followed; what is not there has no second name."""
    found: set[Identity] = set()
    for path in paths:
        with suppress(OSError):
            state = os.lstat(path)
            found.add((state.st_dev, state.st_ino))
    return frozenset(found)


def _inodes_below(places: Iterable[Path]) -> frozenset[int] | None:
    """Return the inodes of files and of all below folders; None when they are too many."""
    waiting = list(map(str, places))
    found = {inode for _, inode in identities(places)}
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:  # a file, gone, or unreadable for us as well
            for entry in entries:
                found.add(entry.inode())
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
        if len(found) > MOST_NAMES:
            return None
    return frozenset(found)
