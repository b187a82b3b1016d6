"""What the tests of settings share."""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Generator[Path]:
    """A file system of 16 KiB; needs the right to mount."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", str(folder)],
        capture_output=True,
        timeout=5,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip("this user cannot mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], timeout=5, check=True)
