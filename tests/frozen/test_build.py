"""The build scripts: what they refuse, before minutes are spent, and what they hand on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frozen.packs import REPO, WAIT_S, pack

PACKAGING = REPO / "packaging"


def test_build_on_a_machine_without_tools_says_what_to_install() -> None:
    """One sentence, no traceback, and nothing was begun."""
    argv = [sys.executable, "-S", str(PACKAGING / "build.py")]

    done = subprocess.run(argv, env={"PATH": ""}, capture_output=True, text=True, timeout=WAIT_S, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("cannot build: gcc, strip, objdump, patchelf, zstd missing: apt-get install ")


def test_name_that_no_tar_header_holds_is_refused(tmp_path: Path) -> None:
    """Found when packing, not by the person who unpacks."""
    (tmp_path / ("n" * 120)).touch()

    with pytest.raises(pack.CannotPack, match="name is too long"):
        pack.make_payload(tmp_path, level=1)


@pytest.mark.parametrize("kind", ["pipe", "hard link"])
def test_what_the_launcher_cannot_make_is_refused(tmp_path: Path, kind: str) -> None:
    """Files, folders and symbolic links only."""
    if kind == "pipe":
        os.mkfifo(tmp_path / "odd")
    else:
        (tmp_path / "first").touch()
        (tmp_path / "odd").hardlink_to(tmp_path / "first")

    with pytest.raises(pack.CannotPack, match="odd is neither file, folder nor symbolic link"):
        pack.make_payload(tmp_path, level=1)


@pytest.mark.parametrize(
    ("loaders", "users"),
    [
        ({"LD_LIBRARY_PATH": "/ours", "_PYI_ARCHIVE_FILE": "f", "_MEIPASS2": "d"}, {}),
        ({"LD_LIBRARY_PATH": "/ours:/users", "LD_LIBRARY_PATH_ORIG": "/users"}, {"LD_LIBRARY_PATH": "/users"}),
        ({"SSL_CERT_FILE": "/users"}, {"SSL_CERT_FILE": "/users"}),
        ({}, {}),
    ],
)
def test_bootstrap_gives_back_the_environment_the_user_had(loaders: dict[str, str], users: dict[str, str]) -> None:
    """PKG-01: before any code of ours or of a library can start a child."""
    source = (
        "import json, os, runpy, sys; runpy.run_path(sys.argv[1]); print(json.dumps([sys.frozen, dict(os.environ)]))"
    )
    argv = [sys.executable, "-I", "-c", source, str(PACKAGING / "bootstrap.py")]

    done = subprocess.run(argv, env=loaders, capture_output=True, text=True, timeout=WAIT_S, check=True)

    is_frozen, environment = json.loads(done.stdout)
    environment.pop("LC_CTYPE", None)  # set by the interpreter itself where no locale is
    assert (is_frozen, environment) == (True, users)
