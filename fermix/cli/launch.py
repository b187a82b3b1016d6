"""Start the daemon in the background when none runs. Used by `fermix`, `fermix start` and `make run`."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fermix.errors import NeedsOperator
from fermix.home import Home, check_socket_path
from fermix.native import detach
from fermix.native.program import own_program, own_variables
from fermix.protocol.ask import Connection, DaemonGone, DaemonNotRunning, RequestFailed

START_TIMEOUT_S = 20.0
POLL_S = 0.03


@dataclass(frozen=True, slots=True)
class Running:
    """The daemon that answers; `fresh` says that this call started it."""

    pid: int
    fresh: bool


def ensure_daemon(home: Home, environ: Mapping[str, str]) -> Running:
    """Find the daemon of this home or start one that outlives us; blocks until it answers.

    Raises: NeedsOperator with the daemon's own last words when it ends before it answers, ConfigError when the home's
    path is too long.
    """
    check_socket_path(home.daemon_socket)
    if (pid := _answering(home)) is not None:
        return Running(pid, fresh=False)
    home.prepare()
    output = home.run / "start.log"
    try:
        output.unlink(missing_ok=True)
        environment = {**environ, **own_variables(environ)}
        pid = detach.start_detached([*own_program(environ), "--daemon"], env=environment, output=output)
    except OSError as error:
        raise NeedsOperator(
            f"the daemon could not be started: {error.strerror}",
            advice=f"see that {home.root} can be written, then try again",
        ) from error
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if (answering := _answering(home)) is not None:
            return Running(answering, fresh=answering == pid)
        if _ended(pid):
            raise NeedsOperator("the daemon did not start", advice=_last_words(output))
        time.sleep(POLL_S)
    raise NeedsOperator(f"the daemon does not answer after {START_TIMEOUT_S:.0f} s", advice="see `fermix logs`")


def _answering(home: Home) -> int | None:
    try:
        connection = Connection(str(home.daemon_socket), client="start", timeout_s=2.0)
    except (DaemonNotRunning, DaemonGone, OSError):
        return None
    except RequestFailed as error:
        raise NeedsOperator("another version of the daemon runs", advice=f"{error}; stop it first") from error
    try:
        pid = connection.welcome.get("pid")
        return pid if isinstance(pid, int) else None
    finally:
        connection.close()


def _ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) != (0, 0)
    except ChildProcessError:
        return not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _last_words(output: Path) -> str:
    try:
        lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return lines[-1] if lines else "run `fermix --daemon` to see why"
