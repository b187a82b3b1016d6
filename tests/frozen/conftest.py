"""Fixtures of the frozen tests: the compiled launcher, packed programs, an empty home."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.frozen import probes
from tests.frozen.bare import START_S
from tests.frozen.packs import REPO, Build, World, pack

PROGRAM = REPO / "dist" / "fermix"


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launcher without a payload."""
    target = tmp_path_factory.mktemp("launcher") / "launcher"
    pack.compile_launcher(target)
    return target


@pytest.fixture(scope="session")
def program_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Make the folder of a program that prints its version: 1,200 files in folders, and a link."""

    def make(version: str) -> Path:
        folder = tmp_path_factory.mktemp(version) / "program"
        library = folder / "_internal" / "lib"
        library.mkdir(parents=True)
        source = Path(__file__).with_name("probe.c")
        options = ["-O1", "-static", f'-DVERSION="{version}"']
        subprocess.run(["gcc", *options, "-o", str(folder / "fermix"), str(source)], check=True, timeout=60)
        (library / "late").write_text("late content", encoding="utf-8")
        (folder / "_internal" / "link").symlink_to("lib/late")
        for number in range(1200):
            (library / f"module{number}.pyc").write_bytes(os.urandom(8000))
        return folder

    return make


@pytest.fixture(scope="session")
def build_of(
    tmp_path_factory: pytest.TempPathFactory, launcher: Path, program_folder: Callable[[str], Path]
) -> Callable[[str], Build]:
    """Pack the program of a version; the same version is packed once."""
    made: dict[str, Build] = {}

    def build(version: str) -> Build:
        if version not in made:
            payload = pack.make_payload(program_folder(version), level=1)
            file = tmp_path_factory.mktemp("dist") / f"fermix-{version}"
            pack.seal(launcher, payload, file)
            made[version] = Build(file, hashlib.sha256(payload.compressed).hexdigest()[:24])
        return made[version]

    return build


@pytest.fixture(scope="session")
def one(build_of: Callable[[str], Build]) -> Build:
    """The packed program most tests use."""
    return build_of("one")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An empty home; removed afterwards, since each holds a thousand files."""
    home = tmp_path / "home"
    home.mkdir()
    yield World(home)
    shutil.rmtree(home)


@pytest.fixture(scope="session")
def program() -> Path:
    """The built program; `make build` makes it."""
    if not PROGRAM.exists():
        pytest.skip("dist/fermix is not built: make build")
    return PROGRAM


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home shared by the starts of the built file, so that it unpacks once."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def ask_inside(program: Path, home: Path, tmp_path: Path) -> Callable[..., object]:
    """Run a probe inside the frozen program and return its answer."""

    def ask(probe: Callable[..., object], *arguments: object, **environment: str) -> object:
        probes.write_probe(tmp_path, probe, *arguments)
        done = subprocess.run(
            [program, "_engine", "--folder", tmp_path, *probes.ARGUMENTS],
            env={"HOME": str(home), "FERMIX_ENGINE_KEY": "none", **environment},
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return ask
