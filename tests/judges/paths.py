"""Paths that lead anywhere, over a folder full of links, and what must hold of every one of them that opens."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePath
from random import Random

from fermix.errors import FermixError
from fermix.native.opener import FOLDER_FLAGS, open_beneath, walk

Open = Callable[[Path, PurePath, int, int], int]
PARTS = (
    "a",
    "b",
    "deep",
    "file",
    "in",
    "out",
    "up",
    "loop",
    "proc",
    "gone",
    "..",
    ".",
    "",
    "/",
    "~",
    "a/b",
    "é",
    "x" * 300,
)
FLAGS = (
    os.O_RDONLY, os.O_RDONLY | os.O_DIRECTORY, os.O_RDONLY | os.O_NONBLOCK, os.O_WRONLY, os.O_RDWR | os.O_APPEND,
    os.O_WRONLY | os.O_CREAT | os.O_EXCL, os.O_WRONLY | os.O_CREAT,
)  # fmt: skip
LINKS = {
    "in": "a",
    "out": "../outside",
    "up": "..",
    "loop": "loop",
    "proc": "/proc/self/root",
    "gone": "../outside/new",
}


def lay_out(top: Path) -> Path:
    """Make a root with links of every kind in each of its folders, and something outside; return the root."""
    root = top / "root"
    for folder in (root, root / "a", root / "a/b", root / "deep", root / "deep/deep"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_text("inside", encoding="utf-8")
        for name, target in LINKS.items():
            with suppress(FileExistsError):
                (folder / name).symlink_to(target)
    (top / "outside").mkdir()
    (top / "outside/file").write_text("outside", encoding="utf-8")
    return root


def by_steps(root: Path, relative: PurePath, flags: int, mode: int) -> int:
    """The way of a kernel without openat2."""
    folder = os.open(root, FOLDER_FLAGS)
    try:
        return walk(folder, relative, flags, mode)
    finally:
        os.close(folder)


def check_path(root: Path, random: Random) -> None:
    """Open one path both ways: what opens lies in the root, no link was followed, and both ways agree on it."""
    relative = PurePath(*(random.choice(PARTS) for _ in range(random.randint(1, 6))))
    flags = random.choice(FLAGS)
    ways: tuple[Open, ...] = (open_beneath, by_steps)
    found = [_opened(way, root, relative, flags) for way in ways if not flags & os.O_CREAT or way is open_beneath]
    stricter = ".." in relative.parts  # by steps there is no way up at all
    assert len(set(found)) == 1 or (stricter and found[1] is None), (relative, flags, found)
    assert {one.name for one in (root.parent / "outside").iterdir()} == {"file"}, relative


def _opened(way: Open, root: Path, relative: PurePath, flags: int) -> str | None:
    """The real path of what opened, None for a refusal. Raises: AssertionError when it lies elsewhere."""
    try:
        descriptor = way(root, relative, flags, 0o600 if flags & os.O_CREAT else 0)
    except (FermixError, OSError, ValueError):
        return None
    try:
        real = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - no path of ours
        assert not os.get_inheritable(descriptor)
    finally:
        os.close(descriptor)
    assert Path(real) == Path(os.path.normpath(root / relative)), (relative, real)
    assert Path(real).is_relative_to(root), (relative, real)
    if flags & os.O_CREAT and Path(real).name != "file":
        Path(real).unlink(missing_ok=True)
    return real
