"""Foreign documents as text, read in a process of its own behind walls. Tools call it.

What must stay true: the bytes of others meet a parser only there, without network, without a file of the owner's,
with a bound on memory and time; whatever becomes of it, the daemon gets text or one error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from fermix.agent.sandbox import Sandbox
from fermix.agent.turn import Turn
from fermix.errors import Unusable
from fermix.native.child import Limits, run_child
from fermix.native.program import inner_program
from fermix.workers import Workers

LIMITS = Limits(timeout_s=30.0, output_bytes=4_194_304)


class Reading:
    """`program` starts Fermix itself."""

    def __init__(self, sandbox: Sandbox, workers: Workers, program: tuple[str, ...]) -> None:
        self._sandbox = sandbox
        self._workers = workers
        self._program = program

    async def text(self, kind: str, data: bytes, turn: Turn, options: Mapping[str, str]) -> str:
        """Return a document as text; its kind is one of `serve_conversion.py`. Raises: Unusable past a bound."""
        confined = await self._workers.run(self._sandbox.confined_reader, turn)
        owner = None if confined.behind is not None else os.getpid()  # whom it ends with, where no walls end it
        finished = await run_child(
            [*inner_program(self._program), "_convert"],
            cwd=Path("/"),
            env=confined.environment,
            stdin=json.dumps([kind, dict(options), owner]).encode("ascii") + b"\n" + data,
            limits=LIMITS,
            behind=confined.behind,
            errors="dropped",
        )
        if finished.ending == "exited" and finished.exit_code == 0:
            return finished.output.decode("utf-8", "replace")
        raise Unusable(
            f"a {kind} of {len(data)} bytes: {finished.ending} {finished.exit_code}",
            user_text=f"The {kind} could not be read as text: its content is broken or takes too long to read.",
        )
