"""The frozen program on a machine that has the C library and nothing else: no Python, no zlib, no shell."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.frozen.packs import unshare_options

START_S = 60
"""The first start unpacks, on a machine that others use too."""
C_LIBRARY = (
    "libc.so.6",
    "libm.so.6",
    "libmvec.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libutil.so.1",
    "libresolv.so.2",
)


@dataclass(frozen=True)
class BareMachine:
    """A root folder for chroot; `/home` in it is the home, `/app/fermix` the program."""

    root: Path

    @staticmethod
    def make(root: Path, program: Path) -> BareMachine:
        """Lay out the folders; raises OSError when this machine's C library lies elsewhere."""
        loader = Path("/lib64/ld-linux-x86-64.so.2")
        for folder in ("lib64", "lib", "proc", "dev", "app", "home", "var/tmp", "probe"):
            (root / folder).mkdir(parents=True)
        for source in [loader, *(_beside_libc(name) for name in C_LIBRARY)]:
            target = root / "lib64" / source.name
            shutil.copy(source, target)
            (root / "lib" / source.name).symlink_to(f"/lib64/{source.name}")
        (root / "dev" / "null").touch()
        shutil.copy(program, root / "app" / "fermix")
        return BareMachine(root)

    def run(
        self, *arguments: str, environment: Mapping[str, str] | None = None, timeout_s: float = START_S
    ) -> subprocess.CompletedProcess[str]:
        """Run the program there with a home and nothing else in its environment."""
        return subprocess.run(
            self._argv(arguments),
            env=_environment(environment or {}),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def talk(self, *arguments: str, sent: bytes, timeout_s: float = START_S) -> subprocess.CompletedProcess[bytes]:
        """Run the program there and send it these bytes."""
        return subprocess.run(
            self._argv(arguments), env=_environment({}), input=sent, capture_output=True, timeout=timeout_s, check=False
        )

    @contextmanager
    def daemon(self) -> Generator[None]:
        """Let a daemon run there until the block is left; it says on stderr that it is ready."""
        argv = self._argv(["--daemon"])
        with subprocess.Popen(argv, env=_environment({}), stderr=subprocess.PIPE, text=True) as daemon:
            assert daemon.stderr is not None
            try:
                assert "ready" in daemon.stderr.readline()
                yield
            finally:
                daemon.terminate()
                daemon.communicate(timeout=START_S)

    def _argv(self, arguments: Sequence[str]) -> list[str]:
        mounts = 'mount -t proc proc "$0/proc"; mount --bind /dev/null "$0/dev/null"; exec chroot "$0" "$@"'
        return ["unshare", *unshare_options(), "sh", "-ec", mounts, str(self.root), "/app/fermix", *arguments]


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": "/home", **extra}


def _beside_libc(name: str) -> Path:
    told = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True, timeout=5)
    return Path(told.stdout.strip()).resolve(strict=True).parent / name
