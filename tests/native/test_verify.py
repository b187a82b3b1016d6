"""A native file that is not the one that was built stops the daemon with advice."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fermix.errors import NeedsOperator
from fermix.native.program import OWN_FOLDER
from fermix.native.verify import FOLDER, verify_native_files
from tests.requirements import covers

BUILT = "_native.abi3.so"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in (FOLDER / "SHA256SUMS", *FOLDER.glob("*.so"), *FOLDER.glob("confine")):
        shutil.copy(path, tmp_path)
    return tmp_path


def test_what_was_built_is_accepted() -> None:
    verify_native_files()


@covers("ship.native.bundled-verified")
def test_one_flipped_byte_is_refused(folder: Path) -> None:
    data = bytearray((folder / BUILT).read_bytes())
    data[len(data) // 2] ^= 1
    (folder / BUILT).write_bytes(data)

    with pytest.raises(NeedsOperator, match="not the one that was built: install Fermix again"):
        verify_native_files(folder)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (BUILT, None, "cannot read the native file"),
        ("SHA256SUMS", None, "cannot read the hashes"),
        ("SHA256SUMS", b"\xff", "cannot read the hashes"),
        ("SHA256SUMS", b"", "not the one that was built"),
        ("_other.so", b"planted", "_other.so is not the one that was built"),
    ],
)
def test_a_file_that_is_missing_or_not_recorded_is_refused(
    folder: Path, name: str, data: bytes | None, message: str
) -> None:
    if data is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(data)

    with pytest.raises(NeedsOperator, match=message):
        verify_native_files(folder)


def test_without_the_built_file_an_import_says_what_to_run() -> None:
    script = "import sys; sys.modules['fermix.native._native'] = None; import fermix.native.sweep"

    done = subprocess.run([sys.executable, "-c", script], cwd=OWN_FOLDER, capture_output=True, text=True, timeout=10)

    assert "the C part of Fermix is not built; run `pip install -e .` in its folder" in done.stderr
