"""The programs under measure: how they are started, how their daemon is spoken to, and what it has used so far."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from fermix.protocol.ask import Connection, DaemonNotRunning

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "dist" / "fermix"
KIND = "built" if BUILT.exists() else "source"
PROGRAM = (str(BUILT),) if BUILT.exists() else (sys.executable, "-m", "fermix")
WAIT_S = 20.0
LOOK_S = 0.002


def environment(home: Path) -> dict[str, str]:
    """The variables of a usual start: one home, and compiled modules are kept as everywhere."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "FERMIX"))}
    return {**kept, "PYTHONPATH": str(ROOT), "FERMIX_HOME": str(home)}


def write_config(home: Path, url: str, *, port: int = 0) -> None:
    """Make a home whose one provider is at this address."""
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(
        f"[fermix_web]\nport = {port}\n"
        f'[fermix_core.providers.openai_compatible]\nbase_url = "{url}"\ndefault_model = "bench"\nprimary = true\n',
        encoding="utf-8",
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@contextmanager
def running(command: Sequence[str], environ: Mapping[str, str], **streams: int) -> Generator[subprocess.Popen[bytes]]:
    """A child that is ended on every way out, by force when it does not listen."""
    process = subprocess.Popen(command, env=environ, **({"stderr": subprocess.DEVNULL} | streams))
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def daemon(
    home: Path, url: str, *, command: Sequence[str] = (*PROGRAM, "--daemon"), variables: Mapping[str, str] | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """A daemon on a fresh home that answers on its socket."""
    write_config(home, url)
    with running(command, environment(home) | (variables or {})) as process:
        connect(home).close()
        yield process


def connect(home: Path) -> Connection:
    """One client of the daemon, who hears of every session."""
    connection: list[Connection] = []

    def answers() -> bool:
        try:
            connection.append(Connection(str(home / "daemon.sock"), client="bench", timeout_s=WAIT_S))
        except DaemonNotRunning:
            return False
        return True

    until(answers)
    connection[0].request("events.subscribe", {"sessions": None, "services": False})
    return connection[0]


def ask(connection: Connection, session: str, text: str) -> float:
    """Ask one question and wait until its turn is settled. Returns the monotonic time at which the reply was here."""
    message_id = uuid.uuid4().hex
    connection.request("message.send", {"id": message_id, "session": session, "text": text})
    replied_at = 0.0
    for name, params in connection.events():
        if name == "reply" and params["message_id"] == message_id:
            replied_at = time.monotonic()
        if name == "turn.ended" and params["message_id"] == message_id:
            break
    assert replied_at, "a turn ended without its reply"
    return replied_at


def until(holds: Callable[[], bool]) -> None:
    """Look again and again, bounded."""
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"nothing within {WAIT_S:.0f} s"
        time.sleep(LOOK_S)


def cpu_s(pid: int) -> float:
    """CPU time of a process so far, its threads included; finer than the ticks of `stat`."""
    stats = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(stat.read_text(encoding="ascii").split()[0]) for stat in stats) / 1e9


def proportional_bytes(connection: Connection) -> int:
    """PSS of a daemon, which says it itself: nobody else may look."""
    return told(connection, "memory_bytes")


def told(connection: Connection, name: str) -> int:
    """A number out of a daemon's status."""
    value = connection.request("status", {})[name]
    assert isinstance(value, int), f"no {name}"
    return value


def resident_bytes(pid: int) -> int:
    """RSS of one process."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
