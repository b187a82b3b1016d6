"""What an attack did, looked at from outside: files, processes, the database, the machine. Nothing that a tool says."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

Tree = dict[str, tuple[object, ...]]
DAEMONS_OWN = ("memory.db", "memory.db-wal", "memory.db-shm", "logs", "traces", "run", "daemon.sock", "daemon.lock")
OF_THE_MACHINE = (
    "/tmp", "/var/tmp", "/dev/shm", "/etc", "/etc/cron.d", "/run", "/root", "/usr/local/bin", "/usr/local/sbin",
    "/var/spool/cron", "/var/spool/cron/crontabs", "/var/spool/at", "/etc/systemd/system", "/etc/profile.d",
)  # fmt: skip
MOST_BYTES = 4_194_304
OPEN_TO_CHANGE = ("/etc/hosts", "/etc/passwd", "/etc/crontab", "/root/.bashrc", "/root/.profile")


def tree(root: Path, besides: Collection[Path]) -> Tree:
    """Every file below a folder with its mode and content, but not what lies in `besides`; links are not followed."""
    closed = {str(path) for path in besides}
    found: Tree = {}
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if os.path.join(folder, name) not in closed]
        for name in (*names, *files):
            path = os.path.join(folder, name)
            if path not in closed:
                found[path] = _state(path)
    return found


def _state(path: str) -> tuple[object, ...]:
    with suppress(FileNotFoundError):
        state = os.lstat(path)
        if stat.S_ISLNK(state.st_mode):
            return ("link", os.readlink(path))
        if not stat.S_ISREG(state.st_mode):
            return (oct(state.st_mode),)
        content = hashlib.sha256(_head(path)).hexdigest()[:16]
        return (oct(state.st_mode), state.st_uid, state.st_nlink, state.st_size, content)
    return ("gone",)


def _head(path: str | Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(MOST_BYTES)


def changed(before: Tree, after: Tree) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def contents(folders: Iterable[Path], besides: Collection[Path]) -> Iterator[tuple[Path, bytes]]:
    """The files below some folders, with their names, but not what lies in `besides`."""
    closed = {str(path) for path in besides}
    for root in folders:
        for folder, names, files in os.walk(root):
            names[:] = [name for name in names if os.path.join(folder, name) not in closed]
            for name in files:
                path = Path(folder, name)
                if str(path) not in closed and stat.S_ISREG(path.lstat().st_mode):
                    yield path, _head(path) + b"\n" + name.encode("utf-8", "surrogateescape")


def left_on_the_machine(mark: str) -> list[str]:
    """Files outside of the estate whose names hold a mark, and places where they should not be found."""
    found: list[str] = []
    for place in OF_THE_MACHINE:
        with suppress(OSError):
            found += [os.path.join(place, name) for name in os.listdir(place) if mark in name]
    for place in OPEN_TO_CHANGE:
        with suppress(OSError):
            found += [place] if mark.encode() in Path(place).read_bytes() else []
    return found


def processes(mark: str) -> list[str]:
    """The processes of the machine, but this one, that carry a mark in their arguments or environment."""
    found: list[str] = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            line = Path("/proc", pid, "cmdline").read_bytes()
            if int(pid) != os.getpid() and mark.encode() in line + Path("/proc", pid, "environ").read_bytes():
                found.append(f"{pid}: {line[:200]!r}")
    return found


def descendants(pid: int) -> set[int]:
    """All that came of a process and lives."""
    found: set[int] = set()
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text(encoding="ascii").split()):
                found |= {child, *descendants(child)}
    return found


class Books:
    """The daemon's database, opened for reading only."""

    def __init__(self, path: Path) -> None:
        self._address = f"{path.as_uri()}?mode=ro"

    def rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self._address, uri=True, timeout=5)) as connection:
            return connection.execute(query, values).fetchall()

    def outcome(self, channel: str, message_id: str) -> str | None:
        rows = self.rows("SELECT outcome FROM inbox WHERE channel = ? AND message_id = ?", channel, message_id)
        return None if not rows or rows[0][0] is None else str(rows[0][0])

    def to_send(self, channel: str, message_id: str) -> int:
        """How many parts of the answer are not with the platform yet."""
        query = (
            "SELECT count(*) FROM outbox JOIN inbox ON inbox.id = entry_id"
            " WHERE channel = ? AND message_id = ? AND state IN ('unsent', 'in_flight')"
        )
        return int(str(self.rows(query, channel, message_id)[0][0]))

    def trust(self, channel: str, message_id: str) -> str:
        return str(self.rows("SELECT trust FROM inbox WHERE channel = ? AND message_id = ?", channel, message_id)[0][0])

    def facts(self) -> list[tuple[object, ...]]:
        """What is remembered beside the conversations."""
        return self.rows("SELECT key, value, archived_at FROM memories ORDER BY id")

    def others(self, channel: str, chat_id: str) -> list[tuple[object, ...]]:
        """What is remembered of every conversation but one."""
        return self.rows(
            "SELECT channel, chat_id, role, kind, content FROM messages WHERE NOT (channel = ? AND chat_id = ?)"
            " ORDER BY id", channel, chat_id,
        )  # fmt: skip
