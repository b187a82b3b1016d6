"""A terminal device with a program on it, for tests that press real keys and read what is drawn."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

REPO = Path(__file__).parents[2]
SCREEN = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
WAIT_S = 5.0


class Terminal:
    """A terminal device with a program on it; `shown` is all that was written to it."""

    def __init__(self, process: subprocess.Popen[bytes], device: int) -> None:
        self.process = process
        self.device = device
        self.shown = b""
        self.is_there = True

    def until(self, text: str, wait_s: float = WAIT_S) -> None:
        until_s = time.monotonic() + wait_s
        while text.encode() not in self.shown:
            assert time.monotonic() < until_s, f"{text!r} never came: {self.shown[-2_000:]!r}"
            self._read()

    def type(self, text: str) -> None:
        os.write(self.device, text.encode())

    def type_until_shown(self, text: str) -> None:
        """Type it again and again: what shares a read with bytes that are no text may be lost with them."""
        until_s = time.monotonic() + WAIT_S
        while text.encode() not in self.shown:
            assert time.monotonic() < until_s, f"{text!r} was never shown"
            self.type(text)
            self._read()

    def vanish(self) -> None:
        """Close our end, as a terminal window that crashes does."""
        self.is_there = False
        os.close(self.device)

    def end(self) -> int:
        """The exit code of a program that is leaving."""
        until_s = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < until_s, "it did not leave"
            self._read()
        self._read()
        return self.process.returncode

    @property
    def modes_left_on(self) -> set[str]:
        """Private modes that were switched on and not off again, in the order of the output."""
        left: set[str] = set()
        for numbers, letter in re.findall(rb"\x1b\[\?([\d;]+)([hl])", self.shown):
            for number in numbers.decode().split(";"):
                (left.add if letter == b"h" else left.discard)(number)
        return left - {"25", "7"}  # cursor and line wrap are on in a terminal that is at rest

    def _read(self) -> None:
        if select.select([self.device], [], [], 0.05)[0]:
            self.shown += os.read(self.device, 65_536)


@contextmanager
def terminal(*argv: str, environ: Mapping[str, str] = SCREEN, size: tuple[int, int] = (100, 30)) -> Generator[Terminal]:
    device, inner = pty.openpty()
    fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
    process = subprocess.Popen(
        argv,
        cwd=REPO,
        env={**os.environ, "COLUMNS": "", "LINES": "", **environ},
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
    )
    on = Terminal(process, device)
    try:
        yield on
    finally:
        process.kill()
        process.wait(WAIT_S)
        os.close(inner)
        if on.is_there:
            os.close(device)
