"""After the whole run no file that a test left behind holds a secret that a daemon was given, and no child ever did.

Every product of tests/flows has a key in its configuration and a token in its environment that are found nowhere else.
While tests run, the processes of the machine are looked at; when the run is over, everything below its temporary folder
is. What is found fails the run. Loaded by tests/conftest.py.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

KEY = f"canarykey{secrets.token_hex(12)}"
TOKEN = f"canarytoken{secrets.token_hex(12)}"
NEEDLES = (KEY.encode(), TOKEN.encode())
MAY_HOLD = ("config.toml", "auth.json", "config.toml.previous")
"""Where a key was put on purpose."""
LOOK_S = 0.2
MOST_BYTES = 67_108_864

FOUND = pytest.StashKey[list[str]]()
WATCH = pytest.StashKey["Watch"]()


class Watch(threading.Thread):
    """Looks at all processes now and then: what a daemon has started must not have what the daemon has."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.found: set[str] = set()
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(LOOK_S):
            self.found.update(told_by_processes())

    def stop(self) -> None:
        self._end.set()
        self.join(5)


def told_by_processes() -> Iterator[str]:
    """A secret in anybody's arguments, or in the environment of a child of a daemon."""
    for pid in (path.name for path in Path("/proc").glob("[0-9]*")):
        with suppress(OSError):
            arguments = Path("/proc", pid, "cmdline").read_bytes()
            if any(needle in arguments for needle in NEEDLES):
                yield f"the arguments of a process: {arguments[:60]!r}"
            environment = Path("/proc", pid, "environ").read_bytes()
            if any(needle in environment for needle in NEEDLES) and b"--daemon" in _parent_of(pid):
                yield f"the environment of a child of a daemon: {arguments[:60]!r}"


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
    session.config.stash[WATCH] = watch = Watch()
    watch.start()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    watch = session.config.stash[WATCH]
    watch.stop()
    factory = getattr(session.config, "_tmp_path_factory", None)
    base: Path | None = getattr(factory, "_basetemp", None)  # None when no test wanted a folder
    found = [*sorted(watch.found), *(told_by_files(base) if base is not None and base.exists() else ())]
    session.config.stash[FOUND] = found
    if found:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for told in terminalreporter.config.stash.get(FOUND, []):
        terminalreporter.write_line(f"SECRET FOUND in {told}", red=True)
