"""After the whole run no file that a test left behind holds a secret that a daemon was given, and no child ever did.

Every product of tests/flows has a key in its configuration and a token in its environment that are found nowhere else.
While tests run, the processes of the machine are looked at; when the run is over, everything below its temporary folder
is. What is found fails the run. Loaded by tests/conftest.py.
"""

from __future__ import annotations

import os
import secrets
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

KEY = f"canarykey{secrets.token_hex(12)}"
TOKEN = f"canarytoken{secrets.token_hex(12)}"
NEEDLES = (KEY.encode(), TOKEN.encode())
MAY_HOLD = ("config.toml", "auth.json", "config.toml.previous")
"""Where a key was put on purpose."""
LOOK_S = 0.2
TOP = Path(__file__).parent.parent
MOST_BYTES = 67_108_864

FOUND = pytest.StashKey[list[str]]()
WATCH = pytest.StashKey["Watch"]()


class Watch:
    """Looks at all processes now and then: what a daemon has started must not have what the daemon has.

    A process of its own and no child of ours: many tests count our descriptors and our children.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.canary_scan"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=TOP
        )
        _stream(self._process.stdin).write(b"\n".join(NEEDLES) + b"\n")
        _stream(self._process.stdin).flush()
        self._process.wait()  # it has left for the background

    def stop(self) -> list[str]:
        """End it and return what it found."""
        _stream(self._process.stdin).close()
        with _stream(self._process.stdout) as told:
            answer = told.read().decode()
        assert answer.endswith("end\n"), "the watch over processes broke"
        return answer.splitlines()[:-1]


def watch_until_told(needles: Sequence[bytes]) -> None:
    """Look every so often until stdin ends; then say what was found."""
    found: set[str] = set()
    while not select.select([sys.stdin], [], [], LOOK_S)[0]:
        found.update(told_by_processes(needles))
    print(*sorted(found), "end", sep="\n")


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def told_by_processes(needles: Sequence[bytes] = NEEDLES) -> Iterator[str]:
    """A secret in anybody's arguments, or in the environment of a child of a daemon."""
    for pid in (path.name for path in Path("/proc").glob("[0-9]*")):
        with suppress(OSError):
            arguments = Path("/proc", pid, "cmdline").read_bytes()
            if any(needle in arguments for needle in needles):
                yield f"the arguments of a process: {arguments[:60]!r}"
            environment = Path("/proc", pid, "environ").read_bytes()
            if any(needle in environment for needle in needles) and _is_given_by_a_daemon(arguments, _parent_of(pid)):
                yield f"the environment of a child of a daemon: {arguments[:60]!r}"


def _is_given_by_a_daemon(arguments: bytes, parent: bytes) -> bool:
    """A child that looks exactly like its daemon is the daemon's fork, which has not become its program yet."""
    return b"--daemon" in parent and arguments != parent


def _parent_of(pid: str) -> bytes:
    parent = Path("/proc", pid, "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
    return Path("/proc", parent, "cmdline").read_bytes()


def told_by_files(folder: Path) -> Iterator[str]:
    """A secret in a file below a folder, logs, traces, databases and crash reports among them."""
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if name not in MAY_HOLD and not path.is_symlink() and path.is_file() and _holds(path):
                yield str(path)


def _holds(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        data = file.read(MOST_BYTES)
        return any(needle in data for needle in NEEDLES)
    return False


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[WATCH] = Watch()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    told = session.config.stash[WATCH].stop()
    factory = getattr(session.config, "_tmp_path_factory", None)
    base: Path | None = getattr(factory, "_basetemp", None)  # None when no test wanted a folder
    found = [*told, *(told_by_files(base) if base is not None and base.exists() else ())]
    session.config.stash[FOUND] = found
    if found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for told in terminalreporter.config.stash.get(FOUND, []):
        terminalreporter.write_line(f"SECRET FOUND in {told}", red=True)


if __name__ == "__main__" and os.fork() == 0:
    watch_until_told([sys.stdin.buffer.raw.readline().strip() for _ in NEEDLES])
