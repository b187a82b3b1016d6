"""`fermix _listen`, hidden: the process that turns recordings into text. Started by the daemon only."""

from __future__ import annotations

import argparse
from pathlib import Path


def main(argv: list[str]) -> int:
    from fermix.gateway.transcription.listener import ListenerOptions, serve

    parser = argparse.ArgumentParser(prog="fermix _listen", description="Listen to recordings for the daemon.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--engine", type=Path, help="where a fetched engine lies; default: an installed one")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True, help="the process to end with")
    options = parser.parse_args(argv)
    return serve(ListenerOptions(options.model, options.engine, options.threads, options.parent))
