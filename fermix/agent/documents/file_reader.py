"""Hand a file to a process of our own that reads it, and judge how that ended. Used by file_read.

The file was opened by the sandbox and goes to the process as its stdin: it gets no name, no folder and no network.
"""

from __future__ import annotations

import os
from pathlib import Path

from fermix.agent.documents.kinds import PDF, PICTURES, Kind
from fermix.agent.documents.limits import (
    FAILED,
    FINISHED,
    MOST_FILE_BYTES,
    MOST_PICTURE_BYTES,
    NOT_A_DOCUMENT,
    TEXT_BYTES,
    TIMEOUT_S,
    Part,
)
from fermix.agent.documents.pictures import MOST_PIXELS, Size, is_small, size_of
from fermix.agent.model import Image, ToolResult
from fermix.agent.sandbox import Sandbox
from fermix.agent.turn import Turn
from fermix.native.child import Finished, Limits, run_child
from fermix.native.program import inner_program
from fermix.workers import Workers

HEADER_BYTES = 1_048_576  # a camera puts a preview and colour tables before the size
SHRUNK = "image/jpeg"
TEXT_LIMITS = Limits(timeout_s=TIMEOUT_S, output_bytes=2 * TEXT_BYTES)
PICTURE_LIMITS = Limits(timeout_s=TIMEOUT_S, output_bytes=MOST_PICTURE_BYTES)


class DocumentReader:
    """Reads what is open as a descriptor; `shown` is the path as the model wrote it."""

    def __init__(self, sandbox: Sandbox, workers: Workers, program: tuple[str, ...]) -> None:
        self._sandbox = sandbox
        self._workers = workers
        self._program = inner_program(program)

    async def read(self, turn: Turn, descriptor: int, kind: Kind, shown: str, part: Part) -> ToolResult:
        """Return the text of a document. Raises: Refused, OSError."""
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes > MOST_FILE_BYTES:
            return ToolResult(False, f"{shown} ({kind.name}, {size_bytes} bytes) is too large to be read")
        words = ["pdf" if kind is PDF else "office", "--first", str(part.first)]
        words += [] if part.most is None else ["--most", str(part.most)]
        finished = await self._run(turn, descriptor, words, TEXT_LIMITS)
        if finished.ending == "exited" and finished.exit_code == NOT_A_DOCUMENT:
            return ToolResult(False, f"{shown} has no text to read: {kind.name}, {size_bytes} bytes")
        return _text_result(finished, kind, shown)

    async def show(self, turn: Turn, descriptor: int, kind: Kind, shown: str) -> ToolResult:
        """Return a picture for a model to see, as it is or smaller."""
        size, size_bytes = await self._workers.run(_sizes_of, descriptor)
        if size is None:
            return ToolResult(False, f"{shown} is a broken {kind.name} picture; it cannot be shown")
        named = f"{shown} is a {kind.name} picture of {size[0]}×{size[1]} pixels"
        if size[0] * size[1] > MOST_PIXELS or size_bytes > MOST_FILE_BYTES:
            return ToolResult(False, f"{named} and {size_bytes} bytes, which is too large to be shown")
        if is_small(size, size_bytes):
            data = await self._workers.run(_whole, descriptor, size_bytes)
            return ToolResult(True, named, (Image(PICTURES[kind.name], data),), outside=True)
        finished = await self._run(turn, descriptor, ["picture"], PICTURE_LIMITS)
        if finished.ending != "exited" or finished.exit_code != FINISHED:
            return ToolResult(False, f"{named}; it is broken, or too large to be shown")
        return ToolResult(True, f"{named}, shown smaller", (Image(SHRUNK, finished.output),), outside=True)

    async def _run(self, turn: Turn, descriptor: int, words: list[str], limits: Limits) -> Finished:
        confined = await self._workers.run(self._sandbox.confined_reader, turn)
        owner = [] if confined.behind is not None else ["--parent", str(os.getpid())]
        argv = [*self._program, "_document", *words, *owner]
        os.lseek(descriptor, 0, os.SEEK_SET)
        return await run_child(
            argv, cwd=Path("/"), env=confined.environment, stdin=descriptor, limits=limits, behind=confined.behind,
            errors="dropped",
        )  # fmt: skip


def _text_result(finished: Finished, kind: Kind, shown: str) -> ToolResult:
    text = finished.output.decode("utf-8", "replace")
    if finished.ending == "exited" and finished.exit_code == FINISHED:
        return ToolResult(True, text, outside=True)
    if finished.ending == "exited" and finished.exit_code == FAILED:
        return ToolResult(False, f"{shown} {text}")
    late = finished.ending == "timeout"
    problem = f"took longer than {TIMEOUT_S:g} s" if late else "is broken, or not made for any reader"
    if not text:
        return ToolResult(False, f"{shown} ({kind.name}) {problem}; it cannot be read")
    return ToolResult(True, f"{text}\n[the rest cannot be read: the file {problem}]", outside=True)


def _sizes_of(descriptor: int) -> tuple[Size | None, int]:
    """Return width and height, and the bytes. Blocking: a header that is all markers takes a third of a second."""
    return size_of(os.pread(descriptor, HEADER_BYTES, 0)), os.fstat(descriptor).st_size


def _whole(descriptor: int, size_bytes: int) -> bytes:
    return os.pread(descriptor, size_bytes, 0)
