"""How long a key takes to appear in the terminal UI while a reply streams into it at 500 words a second."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator

from bench.figures import Figure, p50

WORDS = 6_000
KEYS = "".join(chr(code) for code in range(0x0100, 0x0140))  # letters that no reply holds
PAUSE_S = 0.07  # a quick typist
COLUMNS, LINES = 100, 40
WAIT_S = 20.0


def figures() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as home:
        device, inner = pty.openpty()
        fcntl.ioctl(device, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        program = [sys.executable, "-m", "tests.tui.play", home, str(WORDS)]
        environ = {**os.environ, "TERM": "xterm-256color"}
        with subprocess.Popen(program, env=environ, stdin=inner, stdout=inner, stderr=inner) as process:
            os.close(inner)
            _until(device, "anything, or type")
            os.write(device, b"go\r")
            _until(device, "Streaming")
            echoes = sorted(_echo(device, key) for key in KEYS)
            process.kill()
        os.close(device)
    yield Figure("screen.key_echo", p50(echoes) * 1000, "ms", 50)
    yield Figure("screen.key_echo_p90", echoes[len(echoes) * 9 // 10] * 1000, "ms")


def _echo(device: int, key: str) -> float:
    """From the key to the bytes that show it; then what a typist waits, while the screen goes on."""
    began = time.monotonic()
    os.write(device, key.encode())
    _until(device, key)
    took = time.monotonic() - began
    until_s = time.monotonic() + PAUSE_S
    while (left_s := until_s - time.monotonic()) > 0:
        if select.select([device], [], [], left_s)[0]:
            os.read(device, 65_536)
    return took


def _until(device: int, text: str) -> None:
    began, seen = time.monotonic(), b""
    while text.encode() not in seen:
        assert time.monotonic() - began < WAIT_S, f"{text!r} never came"
        if select.select([device], [], [], 0.5)[0]:
            seen += os.read(device, 65_536)
