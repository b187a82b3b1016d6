"""Put one state of a home in the place of another, and keep the other: all of it happens, whenever the power goes.

A note in the home says what is under way. First all that is there moves into the kept folder, then all that is new
moves in; each move is a rename, and both rows of moves can be begun again. The daemon finishes what it finds begun
before it opens anything. The caller holds the home's lock.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path

from fermix.errors import NeedsOperator
from fermix.home import PRIVATE_DIR, Home, sync_folder, write_atomic
from fermix.store.parts import replaceable


@dataclass(frozen=True, slots=True)
class _Note:
    """`coming` and `kept` are folders, named from the home; `emptied` says that the first row of moves is done."""

    coming: str
    kept: str
    emptied: bool = False


def exchange(home: Home, coming: Path, now: datetime) -> Path:
    """Move what `coming` holds, a folder in the home, into the home; return the folder with what was there before.

    Raises: NeedsOperator when the home cannot be written; what was begun then is finished by the next start.
    """
    try:
        kept = _make_kept(home, now)
        note = _Note(str(coming.relative_to(home.root)), str(kept.relative_to(home.root)))
        _write(home, note)
        _carry_out(home, note)
    except OSError as error:
        raise _stuck(home, error) from error
    return kept


def finish(home: Home) -> None:
    """Finish an exchange that was cut off, else do nothing. Raises: NeedsOperator."""
    try:
        if home.restoring.exists():
            _carry_out(home, _Note(**json.loads(home.restoring.read_text(encoding="utf-8"))))
    except (ValueError, TypeError) as error:
        raise NeedsOperator(
            f"{home.restoring} cannot be read", advice=f"see what {home.replaced} holds, then remove that file"
        ) from error
    except OSError as error:
        raise _stuck(home, error) from error


def last_kept(home: Home) -> Path | None:
    """Return the folder that the last exchange kept, None when there is none."""
    return max((path for path in home.replaced.glob("*") if path.is_dir()), default=None)


def _carry_out(home: Home, note: _Note) -> None:
    coming, kept = home.root / note.coming, home.root / note.kept
    if not note.emptied:
        _move_all(home, home.root, kept, kept)
        note = replace(note, emptied=True)
        _write(home, note)
    _move_all(home, coming, home.root, kept)
    if coming.exists() and not any(coming.iterdir()):
        coming.rmdir()
    home.restoring.unlink()
    sync_folder(home.root)


def _move_all(home: Home, source: Path, target: Path, kept: Path) -> None:
    for name in replaceable(home):
        if (source / name).exists():
            _move(source / name, target / name, kept)
    for folder in (source, target, kept):
        if folder.exists():
            sync_folder(folder)


def _move(source: Path, target: Path, kept: Path) -> None:
    """Move one thing. What came into being between a cut and the next start, such as empty folders, is kept as well."""
    if target.exists():
        late = source if target.parent == kept else target
        late.rename(kept / f"{target.name}.{secrets.token_hex(4)}")
    if source.exists():
        source.rename(target)


def _make_kept(home: Home, now: datetime) -> Path:
    """Make a folder that sorts behind all earlier ones."""
    home.replaced.mkdir(mode=PRIVATE_DIR, exist_ok=True)
    stamp = f"{now:%Y%m%dT%H%M%S}"
    taken = [path.name for path in home.replaced.glob("*")]
    number = 1 + max((int(name.partition("-")[0]) for name in taken if name.partition("-")[0].isdigit()), default=0)
    kept = home.replaced / f"{number:06}-{stamp}"
    kept.mkdir(mode=PRIVATE_DIR)
    sync_folder(home.replaced)
    return kept


def _write(home: Home, note: _Note) -> None:
    write_atomic(home.restoring, json.dumps(asdict(note)).encode("utf-8"))


def _stuck(home: Home, error: OSError) -> NeedsOperator:
    return NeedsOperator(
        f"cannot exchange the files of {home.root}: {error.strerror or error}",
        advice="make it writable and free some space there, then start Fermix: it finishes what was begun",
    )
