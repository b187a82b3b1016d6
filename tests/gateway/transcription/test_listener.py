"""The real listening child around stand-ins for its libraries: what it reads and says, and what it cannot do."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fermix.gateway.transcription.listener import HEADER

ROOT = Path(__file__).parents[3]
ENGINE = ROOT / "tests" / "fakes" / "engine_modules"
PARENT = """
import os, subprocess, sys
child = subprocess.Popen([*sys.argv[2:], "--parent", str(os.getpid())], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
child.stdin.write(bytes.fromhex(sys.argv[1]))
child.stdin.flush()
print(child.pid, flush=True)
child.wait()
"""


def listen_argv(folder: Path) -> list[str]:
    words = ["--model", str(folder), "--engine", str(ENGINE), "--threads", "1"]
    return [sys.executable, "-P", "-m", "fermix", "_listen", *words]


class Listening:
    """A running child; `ask` sends a recording and gives its answer."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def ask(self, audio: bytes) -> dict[str, str]:
        assert self.process.stdin is not None
        self.process.stdin.write(HEADER.pack(len(audio)) + audio)
        self.process.stdin.flush()
        return json.loads(self.line())

    def line(self) -> bytes:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 5)[0]
        return self.process.stdout.readline()


@contextmanager
def listening(folder: Path) -> Generator[Listening]:
    argv = [*listen_argv(folder), "--parent", str(os.getpid())]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}  # no file: see confine
    with subprocess.Popen(argv, **pipes, bufsize=0, env=env) as process:
        try:
            child = Listening(process)
            assert json.loads(child.line()) == {"ready": True}
            yield child
        finally:
            process.kill()


def test_recordings_are_answered_one_by_one_on_a_clean_line(tmp_path: Path) -> None:
    """What a library prints does not reach the daemon."""
    with listening(tmp_path) as child:
        assert child.ask(b"one two") == {"text": "one two"}
        assert child.ask(b"x" * 200_000) == {"text": "x" * 200_000}
        assert child.ask(b"") == {"text": ""}


def test_it_ends_with_its_standard_input_even_in_the_middle_of_a_recording(tmp_path: Path) -> None:
    with listening(tmp_path) as child:
        assert child.process.stdin is not None
        child.process.stdin.write(HEADER.pack(1_000) + b"torn")
        child.process.stdin.close()
        assert child.process.wait(5) == 0


@pytest.mark.parametrize(
    ("audio", "problem"),
    [
        (b"noise", "cannot be decoded (FFmpegError)"),
        (b"video", "holds no sound"),
        (b"endless", "longer than 30 minutes"),
        (b"memory", "too much memory"),
    ],
)
def test_bad_recording_is_a_problem_and_the_next_is_heard(audio: bytes, problem: str, tmp_path: Path) -> None:
    with listening(tmp_path) as child:
        assert problem in child.ask(audio)["problem"]
        assert child.ask(b"next") == {"text": "next"}


@pytest.mark.parametrize("way_out", [b"file", b"socket"])
def test_nothing_can_be_opened_once_it_listens(way_out: bytes, tmp_path: Path) -> None:
    with listening(tmp_path) as child:
        assert child.ask(way_out) == {"text": os.strerror(24)}  # EMFILE


@pytest.mark.parametrize("audio", [b"hang", b"ok"], ids=["busy", "idle"])
def test_it_dies_with_a_daemon_that_is_killed(audio: bytes, tmp_path: Path) -> None:
    """kill -9 of the daemon, whether the child is busy or waits."""
    sent = (HEADER.pack(len(audio)) + audio).hex()
    argv = [sys.executable, "-c", PARENT, sent, *listen_argv(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            assert not select.select([child], [], [], 0)[0]
            parent.kill()
            assert select.select([child], [], [], 5)[0]
        finally:
            os.close(child)


def test_it_does_not_begin_for_a_daemon_that_is_gone(tmp_path: Path) -> None:
    argv = [*listen_argv(tmp_path), "--parent", "1"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, env=env, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


def test_ctrl_c_in_the_terminal_is_left_to_the_daemon(tmp_path: Path) -> None:
    with listening(tmp_path) as child:
        child.process.send_signal(signal.SIGINT)
        assert child.ask(b"still here") == {"text": "still here"}
