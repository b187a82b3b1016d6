"""`fermix --daemon`: the daemon in the foreground, for systemd, launchd and the background start."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fermix.agent.capability import Capability
from fermix.agent.tools.catalog import ToolDeps, build_tools
from fermix.daemon.control import read_candidates, read_tool_keys, read_voice
from fermix.daemon.logs import configure_logging
from fermix.daemon.serve import Start, serve
from fermix.errors import FermixError
from fermix.home import Home, check_socket_path, hold_lock
from fermix.native.private import become_private
from fermix.native.program import own_program
from fermix.native.verify import verify_native_files
from fermix.setup.sections import load_config
from fermix.store.exchange import finish

MOST_FILES = 4_096  # a thousand conversations hold a thousand connections; most systems grant 1,024 files unasked


def main(argv: list[str], *, tools: Callable[[ToolDeps], Sequence[Capability]] = build_tools) -> int:
    parser = argparse.ArgumentParser(prog="fermix --daemon", description="Run the daemon in the foreground.")
    parser.parse_args(argv)
    gc.freeze()  # what the imports made is never looked at again: a full collection would take 50 ms for it
    gc.enable()
    become_private()
    try:
        return _run(Home.locate(os.environ), tools)
    except FermixError as error:
        print(f"fermix: {error}", file=sys.stderr)
        return 1


def _run(home: Home, tools: Callable[[ToolDeps], Sequence[Capability]]) -> int:
    check_socket_path(home.daemon_socket)
    home.prepare()
    with hold_lock(home):
        finish(home)
        verify_native_files()
        config = load_config(home, os.environ)
        configure_logging(home, os.environ, screen=sys.stderr)
        candidates = read_candidates(home, config)
        allow_files()
        program, folder, voice = own_program(os.environ), _launch_folder(), read_voice(home, config)
        keys = read_tool_keys(home, config)
        start = Start(home, os.environ, config, candidates, program, folder, tools, voice, keys)
        problems: list[FermixError] = []
        try:
            asyncio.run(serve(start))
        except* FermixError as group:
            problems.extend(_each(group))
    for problem in problems:
        print(f"fermix: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _each(group: ExceptionGroup[FermixError]) -> Iterator[FermixError]:
    """Every error of a group, however deep: each block that it crossed has wrapped it once more."""
    for error in group.exceptions:
        if isinstance(error, ExceptionGroup):
            yield from _each(error)
        else:
            yield error


def allow_files() -> None:
    """Ask the system for as many open files as a busy daemon needs, as far as it grants them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    granted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < granted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))


def _launch_folder() -> Path:
    try:
        return Path.cwd()
    except OSError:
        return Path("/")  # deleted under us: no folder of the user's, so no root
