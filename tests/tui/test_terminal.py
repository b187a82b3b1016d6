"""The terminal UI as a process of its own on a real terminal device, and once under tmux."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.terminal import SCREEN, terminal

REPO = Path(__file__).parents[2]
PLAY = (sys.executable, "-m", "tests.tui.play")
WAIT_S = 5.0
CRASHING = """
import sys
from pathlib import Path
from fermix.tui.widgets.prompt import Prompt
from tests.tui import play

def fail(self):
    raise RuntimeError("secret of the widget")

Prompt._submit = fail
sys.argv = ["play", sys.argv[1]]
sys.exit(play.main())
"""


@pytest.mark.slow
def test_text_and_enter_in_one_read_are_sent_and_answered(tmp_path: Path):
    with terminal(*PLAY, str(tmp_path), "30") as on:
        on.until("Ask anything")
        on.type("hello 你好\r")
        on.until("fake/streamer")
        on.type("\x03\x03")

        assert on.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "code"),
    [("ctrl-c", 0), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)],
)
def test_terminal_is_given_back_as_it_was(tmp_path: Path, way: str | signal.Signals, code: int):
    """TUI-03: every mode is restored on every path we can catch, also in the middle of a streamed reply."""
    with terminal(*PLAY, str(tmp_path), "5000") as on:
        before = termios.tcgetattr(on.device)
        on.until("Ask anything")
        on.type("go\r")
        on.until("Streaming")
        switched_on = on.modes_left_on
        if isinstance(way, signal.Signals):
            on.process.send_signal(way)
        else:
            on.type("\x03\x03")

        assert on.end() == code
        assert {"1049", "2004"} <= switched_on
        assert on.modes_left_on == set()
        assert len(re.findall(rb"\x1b\[>\d+u", on.shown)) == on.shown.count(b"\x1b[<u")
        assert termios.tcgetattr(on.device) == before


@pytest.mark.slow
@pytest.mark.parametrize("is_busy", [False, True])
def test_vanished_terminal_ends_the_program(tmp_path: Path, is_busy: bool):
    """TUI-03: no SIGHUP reaches a program that the terminal does not control; it must not spin on an ended input."""
    with terminal(*PLAY, str(tmp_path), "5000") as on:
        on.until("Ask anything")
        if is_busy:
            on.type("go\r")
            on.until("Streaming")
        on.vanish()

        assert on.process.wait(WAIT_S) == 129


@pytest.mark.slow
def test_bytes_that_are_no_text_are_passed_over(tmp_path: Path):
    """TUI-05: an old mouse report or a paste in Latin-1 is not the end of the screen."""
    with terminal(*PLAY, str(tmp_path), "30") as on:
        on.until("Ask anything")
        os.write(on.device, b"\x1b[M\xff\xfe\xe9")
        on.type_until_shown("€")
        on.type("\r")
        on.until("fake/streamer")
        on.type("\x03\x03")

        assert on.end() == 0


@pytest.mark.slow
def test_failing_widget_ends_in_a_sentence_and_a_file(tmp_path: Path):
    """TUI-03: an exception in a widget restores the terminal; the traceback is for the log folder only."""
    with terminal(sys.executable, "-c", CRASHING, str(tmp_path)) as on:
        on.until("Ask anything")
        on.type("x\r")

        assert on.end() == 1
        assert on.modes_left_on == set()
        assert b"The screen failed and closed" in on.shown
        assert b"Traceback" not in on.shown
        assert b"secret of the widget" not in on.shown
        assert "secret of the widget" in (tmp_path / "logs" / "tui-crash.log").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("environ", "size", "reason"),
    [
        ({"TERM": "dumb"}, (100, 30), "cannot draw a screen"),
        (SCREEN, (20, 5), "too small (20 x 5"),
    ],
)
def test_terminal_without_a_screen_is_refused_in_one_line(
    tmp_path: Path, environ: Mapping[str, str], size: tuple[int, int], reason: str
):
    """TUI-10: a one-line refusal that points to `fermix ask`."""
    with terminal(*PLAY, str(tmp_path), environ=environ, size=size) as on:
        code = on.end()
        lines = on.shown.decode().strip().splitlines()

    assert code == 2
    assert len(lines) == 1
    assert reason in lines[0]
    assert "fermix ask" in lines[0]


@pytest.mark.slow
def test_pipe_is_refused_in_one_line(tmp_path: Path):
    """TUI-10: not a tty."""
    done = subprocess.run(
        (*PLAY, str(tmp_path)), cwd=REPO, capture_output=True, stdin=subprocess.DEVNULL, timeout=WAIT_S, check=False
    )

    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode().count("\n") == 1
    assert "fermix ask" in done.stderr.decode()


@pytest.mark.slow
def test_nothing_heavy_is_imported_before_the_first_frame():
    """Issue 2: no pydantic before the first frame; the Markdown parser and the HTTP libraries wait as well."""
    heavy = ("pydantic", "aiohttp", "httpx", "markdown_it", "pygments", "rich.markdown", "sqlite3", "mcp")
    code = f"import sys, fermix.tui.app; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run((sys.executable, "-c", code), cwd=REPO, capture_output=True, timeout=WAIT_S, check=True)

    assert done.stdout.decode().strip() == "[]"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_chat_works_under_tmux(tmp_path: Path):
    """Issue 2: the terminal UI once under tmux."""

    def tmux(*words: str) -> str:
        done = subprocess.run(
            ("tmux", "-S", str(tmp_path / "tmux"), "-f", "/dev/null", *words),
            cwd=REPO,
            capture_output=True,
            timeout=WAIT_S,
            check=True,
        )
        return done.stdout.decode()

    def until(text: str) -> str:
        until_s = time.monotonic() + WAIT_S
        while text not in (pane := tmux("capture-pane", "-p", "-t", "chat")):
            assert time.monotonic() < until_s, f"{text!r} never came:\n{pane}"
        return pane

    tmux("new-session", "-d", "-s", "chat", "-x", "90", "-y", "24", *PLAY, str(tmp_path), "30")
    try:
        until("Ask anything")
        tmux("send-keys", "-t", "chat", "-l", "hello 你好")
        tmux("send-keys", "-t", "chat", "Enter")
        until("▌ hello 你好")
        pane = until("fake/streamer\n")
        tmux("resize-window", "-t", "chat", "-x", "60", "-y", "20")
        narrow = until("Enter send · Esc stop")
    finally:
        tmux("kill-server")

    assert "▌ hello 你好" in pane
    assert "Streaming Markdown with code" in pane
    assert max(map(len, narrow.splitlines())) <= 60
