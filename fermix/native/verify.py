"""Compare every compiled file of ours with the hash that its build recorded. Called once at daemon start.

`SHA256SUMS` is written by the build, beside the files, in the form of the program sha256sum.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from fermix.errors import NeedsOperator

FOLDER = Path(__file__).parent
ADVICE = "install Fermix again; from source run `pip install -e .`"


def verify_native_files(folder: Path = FOLDER) -> None:
    """Blocking, a few milliseconds. Raises: NeedsOperator when a file was changed, is missing or is not recorded."""
    try:
        lines = (folder / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NeedsOperator(f"cannot read the hashes of the native files in {folder}", advice=ADVICE) from error
    recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    for name in recorded.keys() | {path.name for path in folder.glob("*.so")}:
        _verify(folder / name, recorded.get(name))


def _verify(path: Path, recorded: str | None) -> None:
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise NeedsOperator(f"cannot read the native file {path}", advice=ADVICE) from error
    if found != recorded:
        raise NeedsOperator(f"the native file {path} is not the one that was built", advice=ADVICE)
