"""Pack a program folder and the launcher into one file.

`build.py` calls this after PyInstaller, the launcher's tests call it with small folders. The same folder gives the
same bytes: entries are sorted, times and owners are zero. The footer is read by `launcher/payload.c`.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import shutil
import struct
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

LAUNCHER_SOURCES = Path(__file__).parent / "launcher"
FOOTER = struct.Struct("<32sQQQQ8s")
MAGIC = b"FERMIXP1"
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")


class CannotPack(Exception):
    """The folder or this machine lacks something; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Payload:
    """What is unpacked: the tar without its end marker, compressed."""

    compressed: bytes
    raw_bytes: int
    entries: int


def compile_launcher(target: Path) -> None:
    """Build the static launcher. Raises CannotPack when the compiler or libzstd is missing."""
    sources = sorted(str(path) for path in LAUNCHER_SOURCES.glob("*.c"))
    options = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-s", "-static", *WARNINGS]
    _run("gcc", *options, "-o", str(target), *sources, "-lzstd")


def make_payload(folder: Path, *, level: int) -> Payload:
    """Return the folder as one compressed tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
        for path in paths:
            _add(tar, folder, path)
        raw_bytes = tar.offset
    compressed = _run("zstd", f"-{level}", "-T1", "-q", "-c", stdin=buffer.getvalue()[:raw_bytes])
    return Payload(compressed, raw_bytes, len(paths))


def seal(launcher: Path, payload: Payload, target: Path) -> None:
    """Write launcher, payload and footer as one executable file; an older file of that name is replaced whole."""
    start = launcher.read_bytes()
    digest = hashlib.sha256(payload.compressed).digest()
    footer = FOOTER.pack(digest, len(start), len(payload.compressed), payload.raw_bytes, payload.entries, MAGIC)
    fresh = target.with_name(f".{target.name}.new")
    fresh.write_bytes(start + payload.compressed + footer)
    fresh.chmod(0o755)
    fresh.replace(target)


def _add(tar: tarfile.TarFile, folder: Path, path: str) -> None:
    entry = tar.gettarinfo(str(folder / path), arcname=path)
    if not (entry.isreg() or entry.isdir() or entry.issym()):
        raise CannotPack(f"{path} is neither file, folder nor symbolic link (a hard link, perhaps)")
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    try:
        tar.addfile(entry, io.BytesIO((folder / path).read_bytes()) if entry.isreg() else None)
    except ValueError as error:
        raise CannotPack(f"{path}: {error}") from error


def _run(tool: str, *arguments: str, stdin: bytes = b"") -> bytes:
    if shutil.which(tool) is None:
        raise CannotPack(f"{tool} is missing: apt-get install gcc zstd libzstd-dev")
    done = subprocess.run([tool, *arguments], input=stdin, capture_output=True, check=False)
    if done.returncode != 0:
        advice = "is libzstd-dev installed? " if b"zstd.h" in done.stderr or b"-lzstd" in done.stderr else ""
        raise CannotPack(f"{tool} failed: {advice}{done.stderr.decode(errors='replace')}")
    return done.stdout


def main() -> int:
    """Pack FOLDER into TARGET."""
    parser = argparse.ArgumentParser(description="pack a program folder behind the launcher")
    parser.add_argument("folder", type=Path, help="the folder that holds the program `fermix`")
    parser.add_argument("target", type=Path)
    parser.add_argument("--level", type=int, default=10, help="zstd level: 10 is quick, 19 is small")
    chosen = parser.parse_args()
    launcher = chosen.target.with_name(".launcher")
    try:
        compile_launcher(launcher)
        seal(launcher, make_payload(chosen.folder, level=chosen.level), chosen.target)
    except CannotPack as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        launcher.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
