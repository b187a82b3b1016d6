"""Where everything of one install lives: FERMIX_HOME, each path once, with its mode.

The home is a 0700 folder. One daemon holds its lock. Files are written whole: a temporary file beside the
target, fsync, rename.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fermix.errors import ConfigError, NeedsOperator

AGENT_ID = "main"
SOCKET_PATH_BYTES = 107  # sun_path holds 108 bytes on Linux with its final NUL; macOS holds 104
PRIVATE_DIR = 0o700
PRIVATE_FILE = 0o600
PAUSE_S = 0.05


@dataclass(frozen=True, slots=True)
class Home:
    """The paths of one install. Source of the table: Architecture, persistence layout."""

    root: Path

    @classmethod
    def locate(cls, environ: Mapping[str, str]) -> Home:
        """Read FERMIX_HOME; blank means unset, a relative path is refused.

        Raises: ConfigError when the path is relative.
        """
        stated = environ.get("FERMIX_HOME", "").strip()
        if not stated:
            return cls(Path(os.path.expanduser("~")) / ".fermix")  # noqa: PTH111 - pathlib's raises without HOME
        path = Path(os.path.expanduser(stated))  # noqa: PTH111
        if not path.is_absolute():
            raise ConfigError("must be an absolute path", path="environment", key="FERMIX_HOME")
        return cls(path)

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def auth(self) -> Path:
        return self.root / "auth.json"

    @property
    def database(self) -> Path:
        return self.root / "memory.db"

    @property
    def memory(self) -> Path:
        return self.root / "memory" / AGENT_ID

    @property
    def bootstrap(self) -> Path:
        return self.root / "bootstrap" / AGENT_ID

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def skills(self) -> Path:
        return self.root / "skills"

    @property
    def plugins(self) -> Path:
        return self.root / "plugins"

    @property
    def grants(self) -> Path:
        return self.root / "grants"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def log_file(self) -> Path:
        return self.logs / "fermix.log"

    @property
    def traces(self) -> Path:
        return self.root / "traces"

    @property
    def job_runs(self) -> Path:
        return self.root / "job_runs"

    @property
    def models(self) -> Path:
        """Downloaded local models and their engine."""
        return self.root / "models"

    @property
    def run(self) -> Path:
        """Short-lived files of the running daemon: helper sockets, start-up output."""
        return self.root / "run"

    @property
    def replaced(self) -> Path:
        """What restores have put aside, a folder for each."""
        return self.root / "replaced"

    @property
    def restoring(self) -> Path:
        """The note of a restore that goes on."""
        return self.root / "restoring.json"

    @property
    def daemon_socket(self) -> Path:
        return self.root / "daemon.sock"

    @property
    def lock(self) -> Path:
        return self.root / "daemon.lock"

    def folders(self) -> tuple[Path, ...]:
        """Every folder that exists from the first start on, parents first."""
        return (
            self.root,
            self.root / "memory",
            self.memory,
            self.root / "bootstrap",
            self.bootstrap,
            self.workspace,
            self.skills,
            self.plugins,
            self.grants,
            self.logs,
            self.traces,
            self.job_runs,
            self.models,
            self.run,
        )

    def prepare(self) -> None:
        """Make the folders, 0700. Raises: NeedsOperator when the home cannot be written or is not ours."""
        try:
            for folder in self.folders():
                folder.mkdir(mode=PRIVATE_DIR, parents=folder == self.root, exist_ok=True)
            state = self.root.stat()
            if state.st_uid != os.geteuid():
                raise NeedsOperator(f"{self.root} belongs to another user", advice="set FERMIX_HOME to your own")
            if stat.S_IMODE(state.st_mode) != PRIVATE_DIR:
                self.root.chmod(PRIVATE_DIR)
        except OSError as error:
            raise NeedsOperator(
                f"cannot prepare {self.root}: {error.strerror}",
                advice="free space or set FERMIX_HOME to a folder you can write",
            ) from error


def check_socket_path(path: Path) -> None:
    """Raises: ConfigError naming the length when a Unix socket cannot be bound there."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_BYTES:
        raise ConfigError(
            f"socket path {path} has {length} bytes, at most {SOCKET_PATH_BYTES} are possible; use a shorter one",
            path="environment",
            key="FERMIX_HOME",
        )


def write_atomic(path: Path, data: bytes, *, mode: int = PRIVATE_FILE) -> None:
    """Replace a file whole: temporary file with its final mode, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)  # nothing is left to take away once it has replaced the target
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make what was made, renamed or removed in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some file systems cannot sync a folder (DB-09); the file itself is safe
    finally:
        os.close(descriptor)


@contextmanager
def hold_lock(home: Home, *, wait_s: float = 0.0) -> Generator[None]:
    """Hold the home for one daemon and leave our pid in the lock file; blocks for `wait_s` while another holds it.

    Raises: NeedsOperator with the pid of the daemon that holds it, or when the file cannot be written.
    """
    try:
        descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as error:
        raise _cannot_lock(home, error) from error
    try:
        _claim(home, descriptor, time.monotonic() + wait_s)
        yield
    finally:
        os.close(descriptor)


def _claim(home: Home, descriptor: int, until: float) -> None:
    try:
        while not _is_locked(descriptor, until):
            time.sleep(PAUSE_S)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    except BlockingIOError:
        pid = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        raise NeedsOperator(
            f"a daemon already runs for {home.root}, or a command that needs it alone (pid {pid})",
            advice="stop it with `fermix stop`, or let the command end",
        ) from None
    except OSError as error:
        raise _cannot_lock(home, error) from error


def _is_locked(descriptor: int, until: float) -> bool:
    """Try once. Raises: BlockingIOError when another holds it and the time is over."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if time.monotonic() >= until:
            raise
        return False
    return True


def _cannot_lock(home: Home, error: OSError) -> NeedsOperator:
    advice = "free space or set FERMIX_HOME to a folder you can write"
    return NeedsOperator(f"cannot lock {home.lock}: {error.strerror}", advice=advice)


def is_held(home: Home) -> bool:
    """Whether a daemon holds this home; a lock ends with its process, whatever way that ends."""
    try:
        descriptor = os.open(home.lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
