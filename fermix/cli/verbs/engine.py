"""`fermix _engine`, hidden: the process of the embedded model's engine. Started by the daemon only."""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def main(argv: list[str]) -> int:
    from fermix.agent.providers.engine import KEY_VARIABLE, EngineOptions, serve

    parser = argparse.ArgumentParser(prog="fermix _engine", description="Serve the embedded model to the daemon.")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="where a fetched engine lies; default: an installed one")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True, help="the process to end with")
    options = parser.parse_args(argv)
    key = os.environ.pop(KEY_VARIABLE, "")
    if not key:
        parser.error(f"{KEY_VARIABLE} is not set: the daemon starts this, not a person")
    return serve(EngineOptions(options.model, options.folder, options.threads, options.context, options.parent), key)
