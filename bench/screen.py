"""The terminal UI under a terminal: its first frame, and how soon a key is seen while a reply streams."""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

from bench.figures import Figure, medians, p50, p95
from bench.program import KIND, PROGRAM, WAIT_S, daemon, environment, running
from bench.provider import BenchProvider
from bench.startup import wall_s

RUNS = 15
SCREEN_SET = (sys.executable, "-c", "import textual.app; from textual.widgets import Static, TextArea")
FIRST_FRAME = "or type /help"  # part of the prompt's placeholder, drawn with the first frame
CONNECTED = "bench"  # the model's name in the status line
KEYS = "αβγδεζηθικλμνξοπρστυφχψω" + "абвгдежзийклмнопрстуфхцчшщъыьэюя"  # each once, none of them in a reply
PARAGRAPH = "Some **Markdown** with `code`, 你好 and a [link](http://localhost) in every paragraph of it. "
LISTING = "\n\n- one point\n- another one\n\n```python\ndef answer(question: str) -> int:\n    return 42\n```\n\n"
PIECES = re.findall(r"\s*\S+", (PARAGRAPH * 4 + LISTING) * 25)
PIECE_S = 0.01  # a quick model
BETWEEN_KEYS_S = 0.07  # a quick typist


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder, BenchProvider(pieces=PIECES, piece_s=PIECE_S) as provider:
        home = Path(folder) / "fermix"
        with daemon(home, provider.base_url):
            yield from _first_frame(home)
            yield from _echo(home, provider)


def _first_frame(home: Path) -> Iterator[Figure]:
    bare, frame = medians(RUNS, lambda: wall_s(SCREEN_SET, environment(home)), lambda: _first_frame_s(home))
    yield Figure("screen.bare_imports", bare * 1000, "ms")
    yield Figure(f"{KIND}.first_frame", frame * 1000, "ms")
    yield Figure(f"{KIND}.first_frame_ratio", frame / bare, "times the bare import of textual", 1.6)


def _first_frame_s(home: Path) -> float:
    """From exec under a terminal to the frame that holds the prompt."""
    began_at = time.monotonic()
    with _screen(home) as screen:
        screen.wait_for(FIRST_FRAME)
        return time.monotonic() - began_at


def _echo(home: Path, provider: BenchProvider) -> Iterator[Figure]:
    with _screen(home) as screen:
        screen.wait_for(CONNECTED)
        screen.type("tell me something\r")
        screen.wait_for("paragraph")
        echoes_s: list[float] = []
        for key in KEYS:
            began_at = time.monotonic()
            screen.type(key)
            screen.wait_for(key)
            echoes_s.append(time.monotonic() - began_at)
            screen.read_for(BETWEEN_KEYS_S)
        assert not provider.left, "the reply ended before the last key"
    yield Figure(f"{KIND}.key_echo", p50(echoes_s) * 1000, "ms", 50.0)
    yield Figure(f"{KIND}.key_echo_p95", p95(echoes_s) * 1000, "ms")


class _Screen:
    """The other end of the terminal: types, and reads what is drawn."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._seen = b""

    def type(self, text: str) -> None:
        os.write(self._leader, text.encode())

    def wait_for(self, text: str) -> None:
        """Read until this was drawn, and forget it."""
        deadline = time.monotonic() + WAIT_S
        while text.encode() not in self._seen:
            assert time.monotonic() < deadline, f"{text!r} was not drawn within {WAIT_S:.0f} s"
            self._read(0.5)
        self._seen = b""

    def read_for(self, seconds: float) -> None:
        """Take what is drawn meanwhile, as a terminal does."""
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            self._read(left_s)

    def _read(self, wait_s: float) -> None:
        if select.select([self._leader], [], [], wait_s)[0]:
            self._seen += os.read(self._leader, 65_536)


@contextmanager
def _screen(home: Path) -> Generator[_Screen]:
    leader, follower = pty.openpty()
    ioctl(follower, TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environ = environment(home) | {"TERM": "xterm-256color"}
    with running(PROGRAM, environ, stdin=follower, stdout=follower, stderr=follower):
        os.close(follower)
        yield _Screen(leader)
    os.close(leader)
