"""Remove what commands left in a temporary folder, whatever it is: trees of any depth, folders closed to ourselves."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path

log = logging.getLogger(__name__)

OPEN = 0o700


def remove_tree(top: Path) -> None:
    """Remove a folder in which nobody works any more; one that is not there is no error. What cannot be removed is
    logged. Blocking. A tree is taken apart level by level at its top, since paths and recursion have limits.
    """
    try:
        while folders := _folders_after_removing_the_rest(top):
            for folder in folders:
                _flatten(folder, top)
        top.rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        log.warning("a temporary folder of commands cannot be removed: %s", error)


def _folders_after_removing_the_rest(folder: Path) -> list[Path]:
    folder.chmod(OPEN)
    found: list[Path] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found.append(Path(entry.path))
            else:
                Path(entry.path).unlink()
    return found


def _flatten(folder: Path, top: Path) -> None:
    for below in _folders_after_removing_the_rest(folder):
        below.chmod(OPEN)  # one that is not ours to write in cannot be moved
        below.rename(top / secrets.token_hex(16))
    folder.rmdir()
