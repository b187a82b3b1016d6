"""file_read and glob_search: look at files by name. Every path goes through the sandbox of the turn."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import PurePosixPath

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.documents.file_reader import DocumentReader
from fermix.agent.documents.kinds import PICTURES, PROBE_BYTES, kind_of
from fermix.agent.documents.kinds import Kind as FileKind
from fermix.agent.documents.limits import TEXT_BYTES, Part
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.results import OUTPUT_CHARS
from fermix.agent.sandbox import Sandbox
from fermix.agent.sandbox.walk import MOST_DEPTH, Parts, Pieces, walk
from fermix.agent.turn import Turn
from fermix.trust import PolicyClass
from fermix.workers import Workers

READ_BYTES = TEXT_BYTES
BLOCK_BYTES = 262_144
FEW_LINES = 10_000  # taken apart faster than counted
SCAN_BYTES = 268_435_456  # how far a line number is looked for; a quarter of a second of reading
DEFAULT_RESULTS = 200
MOST_RESULTS = 1_000
GLOB_S = 20.0


def tools(sandbox: Sandbox, workers: Workers, program: tuple[str, ...]) -> tuple[Capability, ...]:
    """Build the two tools. `program` starts Fermix itself."""
    reader = FileReader(sandbox, workers, program)
    globber = Globber(sandbox, workers)
    return (
        Capability(
            name="file_read",
            description="Read a text file, PDF, Word or Excel file, or see a picture.",
            parameters={
                "type": "object",
                "properties": {
                    "path": {"type": "string"},
                    "offset": {"type": "integer", "minimum": 1, "description": "first line (PDF: page), from 1"},
                    "limit": {"type": "integer", "minimum": 1, "description": "number of lines"},
                },
                "required": ["path"],
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_ONLY,
            owner_only=False,
            run=reader.run,
            category="files",
            when_to_use="to see what is in a file whose path is known",
            output_chars=OUTPUT_CHARS,
            examples=('{"path": "notes.txt"}', '{"path": "app.log", "offset": 1200, "limit": 50}'),
            failure_modes=("a long file comes in parts; each says with which offset the next one begins",),
        ),
        Capability(
            name="glob_search",
            description='List files and folders by pattern: "*" is this folder, "**/*.py" also all below it.',
            parameters={
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "maxLength": 1_000},
                    "path": {"type": "string", "description": "folder, default: the current one"},
                    "max_results": {"type": "integer", "minimum": 1, "maximum": MOST_RESULTS},
                },
                "required": ["pattern"],
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_ONLY,
            owner_only=False,
            run=globber.run,
            category="files",
            when_to_use="to see what is in a folder, or to find files by their names",
            examples=('{"pattern": "*"}', '{"pattern": "**/*.py", "path": "src"}'),
            failure_modes=("a pattern that matches very much is cut and says so; narrow it",),
        ),
    )


class FileReader:
    """file_read."""

    def __init__(self, sandbox: Sandbox, workers: Workers, program: tuple[str, ...]) -> None:
        self._sandbox = sandbox
        self._workers = workers
        self._documents = DocumentReader(sandbox, workers, program)

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        path, offset, limit = str(arguments["path"]), _number(arguments, "offset") or 1, _number(arguments, "limit")
        try:
            found = await self._workers.hand_over(self._read, _close, context.turn, path, Part(offset, limit))
            if isinstance(found, ToolResult):
                return found
            with ExitStack() as ending:
                ending.callback(os.close, found.descriptor)
                return await self._read_other(found, context.turn, path, Part(offset, limit))
        except IsADirectoryError:
            return ToolResult(False, f"{path} is a folder; use glob_search with this path to see what is in it")
        except OSError as error:
            return ToolResult(False, f"cannot read {path}: {error.strerror}")

    def _read(self, turn: Turn, path: str, part: Part) -> ToolResult | _Other:
        """Read text at once; what is none is handed on open."""
        place = self._sandbox.find(turn, path)
        with ExitStack() as ending:
            descriptor = place.open_file()
            ending.callback(os.close, descriptor)
            head = os.pread(descriptor, READ_BYTES + 1 if part.first == 1 else PROBE_BYTES, 0)
            if (kind := kind_of(head)) is not None:
                ending.pop_all()
                return _Other(kind, descriptor)
            if part.first == 1:
                return _lines_of(head, part)
            start = find_line(descriptor, part.first)
            if isinstance(start, int):
                return _lines_of(os.pread(descriptor, READ_BYTES + 1, start), part)
            if start is TOO_DEEP:
                return ToolResult(False, f"line {part.first} lies too deep in {path}; use shell, for example sed -n")
            return ToolResult(False, f"{path} has only {start.lines} lines")

    async def _read_other(self, other: _Other, turn: Turn, path: str, part: Part) -> ToolResult:
        kind, descriptor = other.kind, other.descriptor
        if kind.name in PICTURES:
            return await self._documents.show(turn, descriptor, kind, path)
        if kind.is_document:
            return await self._documents.read(turn, descriptor, kind, path, part)
        size_bytes = os.fstat(descriptor).st_size
        return ToolResult(False, f"{path} has no text to read: {kind.name}, {size_bytes} bytes")


@dataclass(frozen=True, slots=True)
class _Other:
    """An open file that is no plain text."""

    kind: FileKind
    descriptor: int


def _close(found: ToolResult | _Other) -> None:
    """Close what was opened for a turn that has ended meanwhile."""
    if isinstance(found, _Other):
        os.close(found.descriptor)


@dataclass(frozen=True, slots=True)
class Shorter:
    """A file that ends before the line that was looked for."""

    lines: int


TOO_DEEP = Shorter(-1)


def find_line(descriptor: int, number: int) -> int | Shorter:
    """Return where a line of a file begins."""
    skipped = position = 0
    while block := os.pread(descriptor, BLOCK_BYTES, position):
        missing = number - 1 - skipped
        if missing <= FEW_LINES or block.count(b"\n") >= missing:
            parts = block.split(b"\n", missing)
            if len(parts) > missing:
                return position + len(block) - len(parts[-1])
        skipped, position = skipped + block.count(b"\n"), position + len(block)
        if position > SCAN_BYTES:
            return TOO_DEEP
    return Shorter(skipped)


def _lines_of(data: bytes, part: Part) -> ToolResult:
    """Show the whole lines that fit of what was read, and where to go on."""
    kept = data[:READ_BYTES]
    if len(data) > READ_BYTES:
        kept = kept[: kept.rfind(b"\n") + 1]
    if part.most is not None:
        kept = kept[: _end_of(kept, part.most)]
    if kept:
        if len(kept) == len(data):
            return ToolResult(True, _text(kept))
        following = part.first + kept.count(b"\n")
        return ToolResult(True, f"{_text(kept)}\n[more follows: read on with offset={following}]")
    if len(data) > READ_BYTES:
        text = _text(data[:READ_BYTES])
        return ToolResult(True, f"{text}\n[line {part.first} goes on; the next line is offset={part.first + 1}]")
    return ToolResult(True, "" if part.first > 1 else "(empty file)")


def _end_of(data: bytes, lines: int) -> int:
    """Return where so many lines end, the end of all when there are fewer."""
    parts = data.split(b"\n", lines)
    return len(data) - len(parts[-1]) if len(parts) > lines else len(data)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").removeprefix("\ufeff")


class Globber:
    """glob_search."""

    def __init__(self, sandbox: Sandbox, workers: Workers) -> None:
        self._sandbox = sandbox
        self._workers = workers

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        pattern, path = str(arguments["pattern"]), str(arguments.get("path") or ".")
        most = _number(arguments, "max_results") or DEFAULT_RESULTS
        wanted = PurePosixPath(pattern).parts
        if pattern.startswith(("/", "~")) or ".." in wanted:
            return ToolResult(False, "give the folder as path, and a pattern relative to it")
        pieces = Pieces(self._matches(context.turn, path, wanted), most=most, timeout_s=GLOB_S)
        try:
            await pieces.run(self._workers)
        except OSError as error:
            return ToolResult(False, f"cannot look into {path}: {error.strerror}")
        more = [] if pieces.finished else ["[there may be more: narrow the pattern or the path]"]
        return ToolResult(True, "\n".join([*pieces.found, *more]) or f"nothing in {path} matches {pattern}")

    def _matches(self, turn: Turn, path: str, pattern: Parts) -> Generator[str | None]:
        def enter(parts: Parts) -> bool:
            return any(state < len(pattern) for state in states_after(parts, pattern))

        place = self._sandbox.find(turn, path)
        for entry in walk(place.open_folder(), place.closed, enter):
            shown = str(PurePosixPath(path, *entry.parts))
            fits = len(pattern) in states_after(entry.parts, pattern)
            yield shown + ("/" if entry.is_folder else "") if fits else None
            if entry.is_cut:
                yield f"[not looked into, {MOST_DEPTH} folders deep: search with path={shown}]"


def states_after(parts: Parts, pattern: Parts) -> frozenset[int]:
    """How far into a pattern a path may have come: each index is the next part to match, the length is a match.

    All ways are followed at once, so a pattern with many `**` takes no longer than its length times the path's.
    """
    states = _with_empty(frozenset({0}), pattern)
    for part in parts:
        moved: set[int] = set()
        for state in states:
            if state < len(pattern) and pattern[state] == "**":
                moved.add(state)
            elif state < len(pattern) and fnmatch.fnmatchcase(part, pattern[state]):
                moved.add(state + 1)
        states = _with_empty(moved, pattern)
    return states


def _with_empty(states: set[int] | frozenset[int], pattern: Parts) -> frozenset[int]:
    """Add what is reached because `**` also stands for nothing."""
    reached = set(states)
    for index, part in enumerate(pattern):
        if part == "**" and index in reached:
            reached.add(index + 1)
    return frozenset(reached)


def _number(arguments: Mapping[str, JsonValue], name: str) -> int | None:
    value = arguments.get(name)
    return value if isinstance(value, int) else None
