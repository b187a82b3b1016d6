"""Git repositories made by the real git outside of every sandbox, as their owner or a stranger would make them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fermix.native.sweep import children

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "2026-03-04T05:06:07Z",
    "GIT_COMMITTER_DATE": "2026-03-04T05:06:07Z",
}
WAIT_S = 10


@dataclass(frozen=True)
class Repository:
    """A working copy with one commit, "first", on the branch main."""

    top: Path

    @classmethod
    def make(cls, top: Path) -> Repository:
        top.mkdir(parents=True)
        made = cls(top)
        made.git("init", "-q", "-b", "main")
        made.write("a.txt", "one\n")
        made.git("add", ".")
        made.git("commit", "-q", "-m", "first")
        made.git("config", "user.name", "Grace")
        made.git("config", "user.email", "grace@example.org")
        return made

    def git(self, *arguments: str, fails: bool = False) -> str:
        """Run git with every trust that this repository asks for."""
        before = children()
        done = subprocess.run(
            ["git", *arguments], cwd=self.top, env=ENVIRONMENT, capture_output=True, text=True, timeout=WAIT_S,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        _reap(children() - before)
        assert fails or done.returncode == 0, done.stderr
        return done.stdout

    def write(self, name: str, text: str) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


def _reap(left: Iterable[int]) -> None:
    """Wait for what git left running: a test that adopts orphans gets them as its own children."""
    for pid in left:
        os.waitpid(pid, 0)


@dataclass(frozen=True)
class Trap:
    """A program that leaves a mark where it runs; in a folder that commands may write, so that walls hide nothing."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Trap:
        folder.mkdir(parents=True)
        trap = cls(folder)
        trap.program.write_text(f'#!/bin/sh\necho "$0 $*" >> {folder}/mark\n', encoding="utf-8")
        trap.program.chmod(0o755)
        return trap

    @property
    def program(self) -> Path:
        return self.folder / "program"

    @property
    def sprung(self) -> bool:
        return (self.folder / "mark").exists()

    def reset(self) -> None:
        (self.folder / "mark").unlink(missing_ok=True)
