"""Small packed programs for the launcher's tests, and the world each start of one sees."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

REPO = Path(__file__).parents[2]
WAIT_S = 5
"""The bound of every wait in these tests."""
LIST_BUILDS = "find /var/tmp -mindepth 3 -maxdepth 3 -name '[0-9a-f]*' -type d"


def load_pack() -> ModuleType:
    """Load packaging/pack.py; the folder is no package, since one of that name is on the package index."""
    spec = importlib.util.spec_from_file_location("fermix_pack", REPO / "packaging" / "pack.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


pack = load_pack()


@dataclass(frozen=True)
class Build:
    """One packed program: the file, and the name of its folder in the cache."""

    file: Path
    key: str


@dataclass(frozen=True)
class World:
    """A home for starts of packed programs; /var/tmp is an empty one of our own in `mounted`."""

    home: Path

    @property
    def runtime(self) -> Path:
        """The folder that holds the unpacked builds."""
        return self.home / ".cache" / "fermix" / "runtime"

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a start: a home and nothing else."""
        return {"HOME": str(self.home), **extra}

    def run(self, build: Build, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Start a build and wait for its end."""
        argv = [str(build.file), *arguments]
        return subprocess.run(
            argv, env=self.environment(extra), capture_output=True, text=True, timeout=WAIT_S * 4, check=False
        )

    def start(self, build: Build, *arguments: str, **extra: str) -> subprocess.Popen[str]:
        """Start a build with pipes on its stdin and stdout."""
        return subprocess.Popen(
            [str(build.file), *arguments],
            env=self.environment(extra),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def mounted(self, build: Build, script: str, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
        """Start a build after `script` mounted things, in a mount namespace of its own with an empty /var/tmp."""
        then = f'status=0; env -i "$@" || status=$?; {LIST_BUILDS} >&2; exit $status'
        prepare = f"mount -t tmpfs -o mode=1777 tmpfs /var/tmp\n{script}\n"
        variables = [f"{name}={value}" for name, value in self.environment(extra).items()]
        argv = [
            "unshare",
            *unshare_options(),
            "sh",
            "-ec",
            prepare + then,
            "sh",
            *variables,
            str(build.file),
            *arguments,
        ]
        return subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S * 4, check=False)

    def left(self) -> set[str]:
        """Return the names in the runtime folder."""
        return {path.name for path in self.runtime.iterdir()}


def unshare_options() -> list[str]:
    """Return what gives a command a mount namespace of its own; as a user, with a user namespace around it."""
    return ["-m"] if os.geteuid() == 0 else ["-r", "-m"]


def can_mount() -> bool:
    """Say whether this machine lets us mount in a namespace of our own."""
    argv = ["unshare", *unshare_options(), "mount", "-t", "tmpfs", "tmpfs", "/var/tmp"]
    return subprocess.run(argv, capture_output=True, timeout=WAIT_S, check=False).returncode == 0
