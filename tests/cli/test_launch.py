"""Starting the daemon in the background: found, started, or its own last words."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fermix.cli import launch
from fermix.cli.launch import Running, ensure_daemon
from fermix.errors import ConfigError, NeedsOperator
from fermix.home import Home
from tests.fakes.peer import answering, error, result

Program = Callable[[str], dict[str, str]]

SERVE = """
import json, os, socket, sys, time
listener = socket.socket(socket.AF_UNIX)
listener.bind(os.environ["FERMIX_HOME"] + "/daemon.sock")
listener.listen()
listener.settimeout(10)
connection, _ = listener.accept()
request = json.loads(connection.makefile("rb").readline())
answer = {"jsonrpc": "2.0", "id": request["id"], "result": {"pid": os.getpid()}}
connection.sendall(json.dumps(answer).encode() + b"\\n")
connection.recv(1)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "fermix")


@pytest.fixture
def program(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Stand-ins for the daemon's program; gives the environment to start it with."""

    def make(code: str) -> dict[str, str]:
        script = tmp_path / "program"
        script.write_text(f"#!{sys.executable}\n{code}", encoding="utf-8")
        script.chmod(0o755)
        monkeypatch.setattr(launch, "own_program", lambda _: (str(script),))
        return {"FERMIX_HOME": str(home.root), "PATH": os.environ["PATH"]}

    return make


def test_a_daemon_that_runs_is_found_and_none_is_started(home: Home, program: Program) -> None:
    home.prepare()
    with answering(home.daemon_socket, lambda request: result(request, pid=4711)):
        running = ensure_daemon(home, program("raise SystemExit('started')"))

    assert running == Running(4711, fresh=False)
    assert not (home.run / "start.log").exists()


def test_one_is_started_in_a_session_of_its_own_and_its_output_is_private(home: Home, program: Program) -> None:
    running = ensure_daemon(home, program("print('hello', flush=True)\n" + SERVE))
    output = home.run / "start.log"

    assert running.fresh
    assert running.pid != os.getpid()
    assert output.read_text(encoding="utf-8") == "hello\n"
    assert stat.S_IMODE(output.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            "import sys; print('noise'); sys.exit('fermix: config.toml: line 2: wrong')",
            "fermix: config.toml: line 2: wrong",
        ),
        ("raise SystemExit(1)", "run `fermix --daemon` to see why"),
        (
            "import os, sys; sys.stderr.buffer.write(b'bad \\xff byte'); sys.stderr.flush(); os._exit(1)",
            "bad \ufffd byte",
        ),
    ],
)
def test_one_that_ends_before_it_answers_is_told_by_its_last_words(
    home: Home, program: Program, code: str, says: str
) -> None:
    (home.root / "run").mkdir(parents=True)
    (home.root / "run" / "start.log").write_text("words of an earlier start", encoding="utf-8")
    with pytest.raises(NeedsOperator) as caught:
        ensure_daemon(home, program(code))

    assert str(caught.value) == f"the daemon did not start: {says}"


def test_one_that_never_answers_is_waited_for_for_a_bounded_time(
    home: Home, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "START_TIMEOUT_S", 0.1)
    with pytest.raises(NeedsOperator, match="does not answer after 0 s: see `fermix logs`"):
        ensure_daemon(home, program("import time; time.sleep(1)"))


def test_another_version_of_the_daemon_is_told_and_not_replaced(home: Home, program: Program) -> None:
    home.prepare()
    with (
        answering(home.daemon_socket, lambda request: error(request, -32001, "this daemon speaks protocol 2")),
        pytest.raises(NeedsOperator, match=r"another version of the daemon runs: this daemon speaks protocol 2"),
    ):
        ensure_daemon(home, program("raise SystemExit('started')"))


def test_a_program_that_cannot_be_started_is_told(home: Home, program: Program, tmp_path: Path) -> None:
    environ = program(SERVE)
    (tmp_path / "program").unlink()
    with pytest.raises(NeedsOperator, match="the daemon could not be started: No such file"):
        ensure_daemon(home, environ)


def test_a_home_whose_path_is_too_long_is_told_before_anything_is_made(tmp_path: Path, program: Program) -> None:
    home = Home(tmp_path / ("x" * 110))
    with pytest.raises(ConfigError, match="at most 107"):
        ensure_daemon(home, program(SERVE))

    assert not home.root.exists()
