"""Find a program once, by its whole path, and say whether a command could have put it there. Blocking, shortly."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from fermix.agent.sandbox.roots import real


class NoProgram(Exception):
    """Why a program cannot be had, as the end of a sentence."""


def find_program(stated: str, search_path: str) -> Path:
    """Return the whole path of a program named by it, or by a name on PATH. Raises: NoProgram."""
    if not stated.isprintable():  # nor a name that no file system takes
        raise NoProgram("its name holds what cannot be shown")
    if "/" in stated:
        path = Path(stated)
    else:
        folders = (folder for folder in search_path.split(os.pathsep) if folder.startswith("/"))
        found = shutil.which(stated, path=os.pathsep.join(folders))  # never in the current folder
        if found is None:
            raise NoProgram(f'there is no program "{stated}" on PATH')
        path = Path(found)
    if not path.is_absolute() or not path.is_file() or not os.access(path, os.X_OK):
        raise NoProgram(f'"{stated}" is no program that can be run')
    return path


def on_disk(path: Path, *, is_program: bool) -> str:
    """Say what lies at a path now, a program with what changes when it is written; for comparing. Blocking."""
    try:
        state = path.stat()
    except OSError as error:
        return f"none: {error.strerror}"
    version = (state.st_size, state.st_mtime_ns, state.st_ctime_ns) if is_program else ()
    return repr((state.st_dev, state.st_ino, *version))


def lies_in(path: Path, folders: Collection[Path]) -> bool:
    """Say whether a path lies in one of these real folders, by where its name stands or by where it leads."""
    places = (real(path.parent) / path.name, real(path))
    return any(place.is_relative_to(folder) for place in places for folder in folders)


def is_changeable(argv: Sequence[str], folders: Collection[Path]) -> bool:
    """Say whether the program of a command line, or a file that one of its words names, lies in one of these folders.

    For command lines that run in "/", where a relative name counts from there.
    """
    return any(lies_in(Path("/", word), folders) for word in argv)
