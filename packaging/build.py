"""Build the frozen program: `python packaging/build.py` makes dist/fermix.

Needs gcc, binutils, patchelf, zstd, libzstd-dev and a Python with a shared library and venv; says which is missing.
A real install into a fresh environment is frozen, from a copy of the source: nothing of an editable install or of an
older build gets in. Under build/freeze everything can be deleted at any time.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from pack import CannotPack, compile_launcher, make_payload, seal

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "freeze"
TARGET = ROOT / "dist" / "fermix"
SOURCE_PARTS = ("fermix", "packaging", "pyproject.toml", "setup.py", "fermix.spec", "README.md")
EXTRAS = "build,keyring"
TOOLS = ("gcc", "strip", "objdump", "patchelf", "zstd")
BUILT_HERE = shutil.ignore_patterns("*.so", "confine", "SHA256SUMS", "__pycache__")


def build(*, level: int) -> None:
    """Make dist/fermix. Raises CannotPack with what is missing; what is quick to fail comes first."""
    check_machine()
    shutil.rmtree(WORK, ignore_errors=True)
    source = copy_source()
    launcher = WORK / "launcher"
    compile_launcher(launcher)
    pack(launcher, freeze(source, install(source)), level=level)


def check_machine() -> None:
    """Raises CannotPack when a build cannot work here, before a minute is spent."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise CannotPack(f"{', '.join(missing)} missing: apt-get install gcc binutils patchelf zstd libzstd-dev")
    if sysconfig.get_config_var("Py_ENABLE_SHARED") != 1:
        advice = "use Debian's python3, or a pyenv one installed with PYTHON_CONFIGURE_OPTS=--enable-shared"
        raise CannotPack(f"{sys.executable} has no shared library: {advice}")


def copy_source() -> Path:
    """Copy what the build reads; compiled files of the working tree stay behind."""
    source = WORK / "source"
    for part in SOURCE_PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, ignore=BUILT_HERE)
        else:
            source.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / part, source / part)
    return source


def install(source: Path) -> Path:
    """Install the copy into a fresh environment and return the folder of its programs."""
    venv.create(WORK / "venv", with_pip=True)
    programs = WORK / "venv" / "bin"
    _run(programs / "pip", "install", "-q", "--disable-pip-version-check", f"{source}[{EXTRAS}]")
    return programs


def freeze(source: Path, programs: Path) -> Path:
    """Run PyInstaller and return the folder with the program."""
    places = ("--distpath", WORK / "dist", "--workpath", WORK / "pyinstaller")
    _run(programs / "pyinstaller", "--noconfirm", "--log-level", "WARN", *places, source / "fermix.spec")
    folder = WORK / "dist" / "fermix"
    # The loader is linked with libz before it can say where ours is, and a bare machine has none.
    _run("patchelf", "--set-rpath", "$ORIGIN/_internal", folder / "fermix")
    record_native_files(folder / "_internal" / "fermix" / "native")
    return folder


def record_native_files(folder: Path) -> None:
    """Write anew the hashes that the daemon compares: strip changed the files after they were built."""
    built = sorted((*folder.glob("*.so"), folder / "confine"))
    hashes = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built]
    (folder / "SHA256SUMS").write_text("".join(hashes), encoding="ascii")


def pack(launcher: Path, folder: Path, *, level: int) -> None:
    """Make the one file and say how large it is."""
    payload = make_payload(folder, level=level)
    TARGET.parent.mkdir(exist_ok=True)
    seal(launcher, payload, TARGET)
    sizes = f"{TARGET.stat().st_size / 1e6:.1f} MB, unpacked {payload.raw_bytes / 1e6:.1f} MB"
    print(f"{TARGET.relative_to(ROOT)}: {sizes} in {payload.entries} entries")


def _run(program: Path | str, *arguments: str | Path) -> None:
    # The same seed and date every time: the order of sets and the times in archives reach the files otherwise.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "SOURCE_DATE_EPOCH": "315532800"}
    done = subprocess.run([program, *arguments], cwd=WORK, env=environment, check=False)
    if done.returncode != 0:
        raise CannotPack(f"{Path(program).name} failed with exit code {done.returncode}; its output is above")


def main() -> int:
    """Build; exit code 1 with one sentence when it cannot be done."""
    parser = argparse.ArgumentParser(description="build the frozen program in dist/fermix")
    parser.add_argument("--level", type=int, default=10, help="zstd level: 10 is quick, 19 is for a release")
    level = parser.parse_args().level
    try:
        build(level=level)
    except CannotPack as error:
        print(f"cannot build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
