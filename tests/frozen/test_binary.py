"""dist/fermix as a person gets it: one file that needs nothing else on the machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import fermix
from fermix.cli.catalog import VERBS
from tests.fakes.authority import NAME, Authority
from tests.fakes.file_server import FileServer
from tests.frozen import probes
from tests.frozen.bare import START_S, BareMachine
from tests.frozen.packs import REPO, can_mount
from tests.requirements import covers

PROGRAM = REPO / "dist" / "fermix"
GLIBC_FLOOR = (2, 36)
"""Debian 12, Ubuntu 24.04 and later. The libraries of the machine it is built on set it."""
EXTRAS = ("mcp", "playwright", "telegram", "xllamacpp")
"""Packages that the file does not hold: of rooms to come, or fetched."""

pytestmark = [pytest.mark.frozen, pytest.mark.timeout(120)]
needs_mounts = pytest.mark.skipif(not can_mount(), reason="needs the right to mount in a namespace of its own")


@pytest.fixture(scope="module")
def bare(program: Path, tmp_path_factory: pytest.TempPathFactory) -> BareMachine:
    """A machine with a C library only, where the program has started once."""
    return BareMachine.make(tmp_path_factory.mktemp("bare"), program)


@pytest.fixture(scope="module")
def unpacked(program: Path, home: Path) -> Path:
    """The folder the program unpacked itself to."""
    subprocess.run([program, "--version"], env={"HOME": str(home)}, check=True, timeout=START_S, capture_output=True)
    (tree,) = (home / ".cache" / "fermix" / "runtime").glob("*/_internal")
    return tree


@needs_mounts
@covers("ship.binary.self-contained")
def test_program_runs_where_there_is_only_a_c_library(bare: BareMachine) -> None:
    """PKG-06: no Python, no zlib, no certificate, no locale, no shell on the machine."""
    done = bare.run("--version")

    assert (done.returncode, done.stdout, done.stderr) == (0, f"fermix {fermix.__version__}\n", "")


@needs_mounts
def test_exit_codes_are_those_of_the_source(bare: BareMachine) -> None:
    """2 for wrong use, 3 when no daemon runs, and no traceback."""
    assert bare.run("no-such-verb").returncode == 2
    assert bare.run("ask", "--no-such-flag").returncode == 2
    asked = bare.run("ask", "hello")
    assert asked.returncode == 3
    assert "Traceback" not in asked.stderr


@needs_mounts
def test_help_lists_every_verb(bare: BareMachine) -> None:
    """The catalog of verbs is whole in the frozen program."""
    told = bare.run("--help").stdout

    assert [verb.name for verb in VERBS if not verb.hidden and f"  {verb.name} " not in told] == []


@covers("ship.binary.pyinstaller")
def test_program_is_what_pyinstaller_built(ask_inside: Callable[..., object]) -> None:
    """PyInstaller's loader started it, and the standard library is its own."""
    assert ask_inside(probes.what_kind_of_program) == [True, "_internal", True]


def test_every_module_of_ours_can_be_imported(ask_inside: Callable[..., object]) -> None:
    """PKG-06: catalogs import rooms late; nothing of a room is missing, nor what it imports from others."""
    files = (path.relative_to(REPO).with_suffix("") for path in (REPO / "fermix").rglob("*.py"))
    names = sorted(".".join(path.parts).removesuffix(".__init__") for path in files if path.name != "__main__")

    failed = ask_inside(probes.modules_that_fail, names)

    assert isinstance(failed, list)
    assert [line for line in failed if not any(f"No module named '{extra}" in line for extra in EXTRAS)] == []


def test_every_data_file_of_ours_comes_along(unpacked: Path) -> None:
    """PKG-06: styles, migrations, prompts and templates."""
    ours = {path for path in (REPO / "fermix").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    data = {path for path in ours if path.suffix not in {".py", ".pyi", ".c", ".h", ".so"}}

    missing = {path for path in data if not (unpacked / path.relative_to(REPO)).is_file()}

    assert data
    assert missing == set()


@covers("ship.native.bundled-verified")
def test_native_files_are_bundled_and_verified(ask_inside: Callable[..., object], unpacked: Path) -> None:
    """The C part is in the file, and the hash compared at start is that of the file as shipped."""
    assert list((unpacked / "fermix" / "native").glob("*.so"))
    assert ask_inside(probes.native_files_are_verified) == "verified"


@pytest.mark.parametrize("users_own", [{}, {"LD_LIBRARY_PATH": "/users/own"}])
def test_child_gets_the_users_environment(ask_inside: Callable[..., object], users_own: dict[str, str]) -> None:
    """PKG-01: nothing the frozen program was started with reaches a child, and nothing of the user's is lost."""
    child = ask_inside(probes.environment_of_a_child, **users_own)

    assert isinstance(child, dict)
    assert {name: value for name, value in child.items() if name.startswith(("LD_", "_PYI", "_MEI"))} == users_own
    assert child["FERMIX_EXE"] == str(PROGRAM)


@needs_mounts
def test_certificate_authorities_come_along(bare: BareMachine) -> None:
    """PKG-05: the machine has no store, nor a folder where the one that built the program has its own."""
    assert len(_authorities(bare)) > 50


@needs_mounts
def test_store_of_another_distribution_is_found(bare: BareMachine, tmp_path: Path) -> None:
    """PKG-05: built on Debian, run on Fedora, where the owner has added a company's authority."""
    store = bare.root / "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
    store.parent.mkdir(parents=True)
    shutil.copy(Authority(tmp_path).file, store)

    (only,) = _authorities(bare)
    shutil.rmtree(bare.root / "etc")

    assert NAME in only


def _authorities(bare: BareMachine) -> list[str]:
    probes.write_probe(bare.root / "probe", probes.authorities)
    done = bare.run("_engine", "--folder", "/probe", *probes.ARGUMENTS, environment={"FERMIX_ENGINE_KEY": "none"})
    assert (done.returncode, done.stderr) == (0, "")
    found: list[str] = json.loads(done.stdout)
    return found


def test_users_authority_is_trusted(ask_inside: Callable[..., object], tmp_path: Path) -> None:
    """PKG-05: `SSL_CERT_FILE` of the user is honoured, in a handshake with a real server."""
    authority = Authority(tmp_path)
    with FileServer(b"").serve(authority.server_side) as server:
        status = ask_inside(probes.handshake, server.base_url, SSL_CERT_FILE=str(authority.file))

    assert status == 501  # it knows no POST, and says so over TLS


def test_no_library_needs_a_newer_c_library_than_stated(unpacked: Path) -> None:
    """The floor that the README states is true of every file in the program."""
    natives = [*unpacked.rglob("*.so"), *unpacked.rglob("*.so.*"), unpacked.with_name("fermix")]
    needed = {path.name: _glibc_needed(path) for path in natives}

    assert len(natives) > 30
    assert {name: version for name, version in needed.items() if version > GLIBC_FLOOR} == {}


def _glibc_needed(path: Path) -> tuple[int, ...]:
    told = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True, timeout=5).stdout
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", told)
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def test_file_is_one_static_program(program: Path) -> None:
    """The file itself needs no library at all, not even the C library."""
    told = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True, timeout=5).stdout

    assert "INTERP" not in told
    assert os.access(program, os.X_OK)
