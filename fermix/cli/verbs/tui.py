"""`fermix`: the terminal UI, attached to the daemon; starts one when none runs."""

from __future__ import annotations

import argparse
import os

from fermix.cli import output
from fermix.errors import FermixError
from fermix.home import Home
from fermix.protocol.client import DaemonClient
from fermix.tui.app import run_tui
from fermix.tui.wizard_desk import WizardDesk
from fermix.workers import Workers


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="fermix", description="Chat in the terminal. The daemon is started when none runs and outlives the screen."
    )
    parser.parse_args(argv)
    try:
        home = Home.locate(os.environ)
    except FermixError as error:
        return output.failed("tui", str(error))
    workers = Workers(max_threads=1)

    async def start_daemon() -> str:
        from fermix.cli.launch import ensure_daemon  # most screens find a daemon and need none of it

        running = await workers.run(ensure_daemon, home, os.environ)
        return f"A daemon was started (pid {running.pid}); it keeps running after you leave." if running.fresh else ""

    try:
        return run_tui(
            home,
            connect=lambda: DaemonClient.connect(home.daemon_socket, client="tui"),
            start_daemon=start_daemon,
            setup=WizardDesk(home, os.environ, workers),
        )
    finally:
        workers.close()
