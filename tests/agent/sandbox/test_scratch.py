"""What hostile commands leave in their temporary folder goes all the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fermix.agent.sandbox.scratch import remove_tree


def test_a_tree_deeper_than_any_path_or_stack_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(5_000):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)

    remove_tree(top)

    assert not top.exists()


def test_what_is_closed_to_ourselves_is_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    """R-31."""
    top, outside = tmp_path / "top", tmp_path / "outside"
    (top / "closed/inner").mkdir(parents=True)
    (top / "closed/inner/file").write_text("x")
    (top / "link").symlink_to(outside)
    (top / "closed/link").symlink_to(outside)
    os.mkfifo(top / "closed/pipe")
    outside.mkdir()
    (outside / "kept").write_text("kept")
    outside.chmod(0o750)
    for folder in (top / "closed/inner", top / "closed", top):
        folder.chmod(0)

    remove_tree(top)

    assert not top.exists()
    assert (outside / "kept").exists()
    assert outside.stat().st_mode & 0o777 == 0o750


def test_nothing_to_remove_is_no_error_and_what_cannot_be_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    remove_tree(tmp_path / "missing")
    assert caplog.text == ""

    (tmp_path / "file").write_text("x")
    remove_tree(tmp_path / "file")
    assert "cannot be removed" in caplog.text
