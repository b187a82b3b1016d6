"""Nothing is opened through a link, by either way of opening."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest

from fermix.errors import OutsideSandbox
from fermix.native.opener import open_beneath, walk

Open = Callable[[Path, PurePath, int, int], int]


def by_kernel(root: Path, relative: PurePath, flags: int, mode: int) -> int:
    return open_beneath(root, relative, flags, mode)


def by_components(root: Path, relative: PurePath, flags: int, mode: int) -> int:
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return walk(folder, relative, flags, mode)
    finally:
        os.close(folder)


@pytest.fixture(params=[by_kernel, by_components])
def opens(request: pytest.FixtureRequest) -> Open:
    return request.param


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    root = tmp_path / "root"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("text", encoding="utf-8")
    (root / "up").symlink_to("..")
    (root / "a/absolute").symlink_to(tmp_path / "secret")
    (root / "a/inner").symlink_to("b/file")
    (root / "a/magic").symlink_to("/proc/self/root")
    return root


def test_a_file_below_is_opened_and_not_inherited(opens: Open, root: Path) -> None:
    descriptor = opens(root, PurePath("a/b/file"), os.O_RDONLY, 0)

    assert os.read(descriptor, 10) == b"text"
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)


def test_the_folder_itself_can_be_opened(opens: Open, root: Path) -> None:
    descriptor = opens(root, PurePath(), os.O_RDONLY | os.O_DIRECTORY, 0)

    assert os.fstat(descriptor).st_ino == root.stat().st_ino
    os.close(descriptor)


def test_a_new_file_gets_its_mode(opens: Open, root: Path) -> None:
    os.close(opens(root, PurePath("a/new"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))

    assert (root / "a/new").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "path", ["up/secret", "a/absolute", "a/inner", "a/magic/etc/passwd", "../secret", "a/../../secret", "/etc/passwd"]
)
def test_a_link_or_a_way_up_is_not_followed(opens: Open, root: Path, path: str) -> None:
    """SBX-01, SBX-02: not even a link that stays inside, because its target was not what was decided on."""
    before = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises((OutsideSandbox, OSError)) as caught:
        opens(root, PurePath(path), os.O_RDONLY, 0)

    assert not isinstance(caught.value, FileNotFoundError)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_missing_file_stays_a_plain_error(opens: Open, root: Path) -> None:
    with pytest.raises(FileNotFoundError):
        opens(root, PurePath("a/none"), os.O_RDONLY, 0)


def test_a_root_that_became_a_link_is_not_opened(root: Path) -> None:
    root.rename(root.with_name("moved"))
    root.symlink_to("/")

    with pytest.raises(OSError, match=r"directory|symbolic"):
        open_beneath(root, PurePath("etc/passwd"), os.O_RDONLY)
