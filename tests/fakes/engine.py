"""The program's own command as the embedded model runs it, without a model: `_engine …` and `model fetch --json`.

FERMIX_FAKE_ENGINE says how it behaves: "" well, "dies" ends before it listens, "offline" cannot fetch,
"both" brings an engine as well.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

MANNER = os.environ.get("FERMIX_FAKE_ENGINE", "")


def engine() -> int:
    if MANNER == "dies":
        print("loading\nerror: the model is broken", file=sys.stderr)
        return 3
    print(json.dumps({"listening": "http://127.0.0.1:4711"}), flush=True)
    signal.pause()
    return 0


def fetch() -> int:
    step = {"name": "m.gguf", "done_bytes": 1, "total_bytes": 4, "state": "running", "error": ""}
    print(json.dumps(step), flush=True)
    if MANNER == "offline":
        print(json.dumps({**step, "state": "failed", "error": "no network: bring the file"}))
        return 1
    Path("m.gguf").write_bytes(b"gguf")
    print(json.dumps({**step, "done_bytes": 4, "state": "done"}), flush=True)
    if MANNER == "both":
        Path("engine-1").mkdir()
        wheel = {"name": "engine-1-any.whl", "total_bytes": 6, "error": ""}
        print(json.dumps({**wheel, "done_bytes": 0, "state": "verifying"}))
        print(json.dumps({**wheel, "done_bytes": 6, "state": "done"}))
    return 0


if __name__ == "__main__":
    sys.exit(engine() if sys.argv[1] == "_engine" else fetch())
