"""The program's hidden verb `_listen` as the daemon runs it, without a model: tells what it was given.

A recording says what happens: "dies" ends the child over it, "hangs" makes the file `hanging` and never answers,
"refuse" is a problem; any other is "heard N: …". FERMIX_HOME/manner says how it starts: "dies" never becomes ready,
"once" does the second time.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
from pathlib import Path

HOME = Path(os.environ["FERMIX_HOME"])


def main() -> int:
    manner = HOME / "manner"
    said = manner.read_text(encoding="utf-8") if manner.exists() else ""
    if said:
        print("loading\nerror: no ears", file=sys.stderr)
        if said == "once":
            manner.unlink()
        return 3
    print(json.dumps({"ready": True}), flush=True)
    heard = 0
    while header := sys.stdin.buffer.read(8):
        audio = sys.stdin.buffer.read(*struct.unpack("!Q", header))
        heard += 1
        if audio == b"dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if audio == b"hangs":
            (HOME / "hanging").touch()
            signal.pause()
        answer = {"problem": "no sound"} if audio == b"refuse" else {"text": f"heard {heard}: {audio[:20].decode()}"}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
