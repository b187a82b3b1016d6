"""A verb at a terminal, with one answer typed when it asks."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time

from tests.flows.product import WAIT_S, Product, program


def at_a_terminal(product: Product, answer: str, *argv: str) -> tuple[int, str]:
    """Type `answer` once "Type yes" is shown: the exit code, and all that was on the screen."""
    ours, theirs = pty.openpty()
    running = subprocess.Popen(
        [*program(), *argv], stdin=theirs, stdout=theirs, stderr=theirs, env=product.environ, cwd=product.user_home
    )
    os.close(theirs)
    try:
        shown = _until(ours, "Type yes")
        os.write(ours, f"{answer}\n".encode())
        shown += _until(ours, None)
        return running.wait(WAIT_S), shown.replace("\r\n", "\n")
    finally:
        running.kill()
        running.wait(WAIT_S)
        os.close(ours)


def _until(terminal: int, word: str | None) -> str:
    """Read until `word` is there, or to the end."""
    shown, deadline = "", time.monotonic() + WAIT_S
    while word is None or word not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise AssertionError(f"nothing more is shown after {shown!r}")
        try:
            data = os.read(terminal, 4096)
        except OSError:  # Linux says so when the last writer is gone
            data = b""
        if not data:
            break
        shown += data.decode("utf-8", "replace")
    return shown
