"""`fermix logs`: the daemon's log, from its file; works without a daemon."""

from __future__ import annotations

import argparse
import os
import time
from collections import deque
from pathlib import Path
from typing import TextIO

from fermix.cli import output
from fermix.config.environment import log_file
from fermix.errors import FermixError
from fermix.home import Home

POLL_S = 0.2


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="fermix logs", description="Show the daemon's log.")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as lines arrive; Ctrl-C ends")
    parser.add_argument("-n", "--lines", type=int, default=100, help="how many of the last lines (default: 100)")
    options = parser.parse_args(argv)
    if options.lines < 0:
        return output.wrong_use("logs", "-n takes a number of lines, 0 or more")
    try:
        path = log_file(Home.locate(os.environ), os.environ)
    except FermixError as error:
        return output.failed("logs", str(error))
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return output.failed("logs", f"there is no log yet at {path}; start the daemon with `fermix start`")
    except OSError as error:
        return output.failed("logs", f"cannot read {path}: {error.strerror}")
    with file:
        for line in deque(file, maxlen=options.lines):
            print(line, end="", flush=True)
        rotated = options.follow and _follow(path, file)
    while rotated:
        with path.open(encoding="utf-8", errors="replace") as file:
            rotated = _follow(path, file)
    return 0


def _follow(path: Path, file: TextIO) -> bool:
    """Print new lines until the log is rotated and this file is at its end; then True."""
    while True:
        rotated = _rotated(path, file)  # asked first: what was written before the rotation is still read here
        for line in file:
            print(line, end="", flush=True)
        if rotated:
            return True
        time.sleep(POLL_S)


def _rotated(path: Path, file: TextIO) -> bool:
    try:
        return path.stat().st_ino != os.fstat(file.fileno()).st_ino
    except FileNotFoundError:
        return False  # between the rename and the new file
