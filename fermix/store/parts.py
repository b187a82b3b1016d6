"""What of a home goes with a backup and comes back with a restore; everything else stays where it is.

The database is the memory; the rest says how Fermix is set up and what it may do. Keys in auth.json or a keyring
stay out: a backup is carried to other disks. What can be fetched again (models) or is only looked at (logs, traces)
stays out as well, and so does the workspace, which is the owner's own folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fermix.home import Home

SIDE_FILES = ("-wal", "-shm", "-journal")


def files(home: Home) -> tuple[Path, ...]:
    """Return the single files beside the database."""
    return (home.config,)


def folders(home: Home) -> tuple[Path, ...]:
    """Return the folders that go whole: prompt files as seeded and as derived, and grants."""
    return (home.bootstrap.parent, home.memory.parent, home.grants)


def replaceable(home: Home) -> tuple[str, ...]:
    """Return the names, in the home, of all that a restore replaces."""
    database = home.database.name
    kept = (*files(home), *folders(home))
    return (database, *(database + suffix for suffix in SIDE_FILES), *(path.name for path in kept))


def members(home: Home) -> Iterator[Path]:
    """Yield every file beside the database that a backup takes. Links and what is half written are left out."""
    for path in files(home):
        if path.is_file() and not path.is_symlink():
            yield path
    for folder in folders(home):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
                yield path


def is_member(home: Home, name: str) -> bool:
    """Tell whether a backup may hold a file of this name, which is a path below the home."""
    steps = name.split("/")
    if any(step in ("", ".", "..") or "\\" in step or "\0" in step for step in steps):
        return False
    if len(steps) == 1:
        return name in (home.database.name, *(path.name for path in files(home)))
    return steps[0] in {folder.name for folder in folders(home)}
