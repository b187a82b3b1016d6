"""How to start this same program again: for hidden verbs that need a process of their own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

FROZEN = hasattr(sys, "_MEIPASS")
"""This is the frozen program: its loader has set the folder of its files."""

OWN_FOLDER = Path("/") if FROZEN else Path(__file__).parents[2]
"""Where to start our own program: an interpreter finds the package where it stands, the frozen file finds its own."""


def own_program(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the beginning of an argv; a verb comes next. `FERMIX_EXE` is set by the launcher of the frozen file.

    Where nothing is frozen, that variable is a leftover of another Fermix, or somebody's trick, and counts for nothing.
    """
    return (environ["FERMIX_EXE"],) if FROZEN else (sys.executable, "-m", "fermix")
