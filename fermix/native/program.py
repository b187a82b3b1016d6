"""How to start this same program again: the daemon, and hidden verbs that need a process of their own.

What must stay true: nothing that lies in the current folder is ever imported, whatever that folder holds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

FROZEN = hasattr(sys, "_MEIPASS")
"""This is the frozen program: its loader has set the folder of its files."""

OWN_FOLDER = Path("/") if FROZEN else Path(__file__).parents[2]
"""Where the package stands, for an interpreter to find it; the frozen file finds its own."""


def own_program(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the beginning of an argv; a verb comes next. `FERMIX_EXE` is set by the launcher of the frozen file.

    Where nothing is frozen, that variable is a leftover of another Fermix, or somebody's trick, and counts for nothing.
    """
    return (environ["FERMIX_EXE"],) if FROZEN else (sys.executable, "-P", "-m", "fermix")


def inner_program(program: tuple[str, ...]) -> tuple[str, ...]:
    """Return what `program` becomes once it is unpacked, for where nothing can be unpacked. It is in use, by us."""
    return (sys.executable,) if FROZEN else program


def own_places() -> tuple[Path, ...]:
    """Return the folders that this program is read from."""
    if FROZEN:
        return (Path(sys.executable).parent,)
    return (Path(sys.prefix), Path(sys.base_prefix), OWN_FOLDER / "fermix")


def own_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the environment of our own program needs so that an interpreter finds this package, installed or not.

    An entry that is not absolute means the current folder, or one in it, and is left out.
    """
    if FROZEN:
        return {}
    given = filter(os.path.isabs, environ.get("PYTHONPATH", "").split(os.pathsep))
    return {"PYTHONPATH": os.pathsep.join((*given, str(OWN_FOLDER)))}
