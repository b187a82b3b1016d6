"""content_search: find lines in the files below a folder.

Plain text is looked for here, in short pieces on the workers. A regular expression may run for years and cannot be
interrupted, so it runs in a process of its own: this module again, behind the hidden verb `_search`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path, PurePosixPath

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.sandbox import Place, Sandbox
from fermix.agent.sandbox.closed import Closed
from fermix.agent.sandbox.walk import MOST_DEPTH, Entry, Pieces, walk
from fermix.agent.turn import Turn
from fermix.errors import OutsideSandbox
from fermix.native.child import Limits, run_child
from fermix.native.sweep import die_with_parent
from fermix.trust import PolicyClass
from fermix.workers import Workers

BLOCK_BYTES = 262_144  # nearly every source file, in one call
PROBE_BYTES = 4_096  # a NUL in here makes a file binary
MOST_FILE_BYTES = 16_777_216  # larger ones are no text that a person wrote
MOST_LINE_CHARS = 300
DEFAULT_RESULTS = 200
MOST_RESULTS = 1_000
DEFAULT_TIMEOUT_S = 30
MOST_TIMEOUT_S = 120

FINISHED, FAILED, MORE = 0, 1, 3  # exit codes of the hidden verb
MORE_NOTE = "[there may be more: narrow the pattern or the path]"


def tools(sandbox: Sandbox, workers: Workers, program: tuple[str, ...]) -> tuple[Capability, ...]:
    """Build the tool. `program` starts Fermix itself."""
    return (
        Capability(
            name="content_search",
            description="Search text in all files of a folder; gives path:line: text.",
            parameters={
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "minLength": 1, "maxLength": 1_000},
                    "path": {"type": "string", "description": "folder or file, default: the current one"},
                    "regex": {"type": "boolean", "description": "a Python regex"},
                    "max_results": {"type": "integer", "minimum": 1, "maximum": MOST_RESULTS},
                    "timeout": {"type": "integer", "minimum": 1, "maximum": MOST_TIMEOUT_S, "description": "seconds"},
                },
                "required": ["pattern"],
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_ONLY,
            owner_only=False,
            run=Searcher(sandbox, workers, program).run,
            category="files",
            when_to_use="to find out which file says something",
            examples=('{"pattern": "invoice 2024"}', '{"pattern": "def .*_path", "path": "src", "regex": true}'),
            failure_modes=("binary files and files over 16 MiB are passed over",),
        ),
    )


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for, and at most how many lines and seconds. `shown` is the place as the model wrote it."""

    pattern: str
    shown: str
    most: int
    timeout_s: int


class Searcher:
    """The tool itself."""

    def __init__(self, sandbox: Sandbox, workers: Workers, program: tuple[str, ...]) -> None:
        self._sandbox = sandbox
        self._workers = workers
        self._program = program

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        query = Query(
            pattern=str(arguments["pattern"]),
            shown=str(arguments.get("path") or "."),
            most=_number(arguments, "max_results", DEFAULT_RESULTS),
            timeout_s=_number(arguments, "timeout", DEFAULT_TIMEOUT_S),
        )
        search = self._search_regex if arguments.get("regex") is True else self._search_text
        try:
            return await search(query, context.turn)
        except OSError as error:
            return ToolResult(False, f"cannot search in {query.shown}: {error.strerror}")

    async def _search_text(self, query: Query, turn: Turn) -> ToolResult:
        needle = query.pattern

        def steps() -> Generator[str | None]:
            place = self._sandbox.find(turn, query.shown)
            yield from search_place(place, query.shown, lambda line: needle in line, needle.encode("utf-8", "replace"))

        pieces = Pieces(steps(), most=query.most, timeout_s=query.timeout_s)
        await pieces.run(self._workers)
        return _result(pieces.found, query, is_all=pieces.finished)

    async def _search_regex(self, query: Query, turn: Turn) -> ToolResult:
        place = await self._workers.run(self._sandbox.find, turn, query.shown)
        finished = await run_child(
            [*self._program, "_search"],
            cwd=Path("/"),  # it opens by the whole path that it is sent
            env=self._sandbox.own_environment,
            stdin=encode_request(place, query),
            limits=Limits(timeout_s=query.timeout_s),
        )
        text = finished.output.decode("utf-8", "replace")
        if finished.ending == "exited" and finished.exit_code not in (FINISHED, MORE):
            return ToolResult(False, text.strip() or "the search broke off; try a simpler pattern")
        lines = text.split("\n")[:-1]  # behind the last line end is nothing, or half a line
        return _result(lines, query, is_all=finished.ending == "exited" and finished.exit_code == FINISHED)


def search_place(place: Place, shown: str, fits: Callable[[str], object], needle: bytes = b"") -> Generator[str | None]:
    """Give `path:line: text` for each line that fits, None after each file. Files without `needle` are passed over.

    A folder that lies too deep gives a line that says how to search it.
    """
    try:
        folder = place.open_folder()
    except NotADirectoryError:
        yield from _lines(_text_of(place.open_file(), needle), shown, fits)
        return
    for entry in walk(folder, place.closed, enter=lambda parts: True):
        if entry.is_cut:
            yield f"[not searched, {MOST_DEPTH} folders deep: search with path={_shown(shown, entry)}]"
        descriptor = None if entry.is_folder else entry.open(place.closed)
        data = None if descriptor is None else _text_of(descriptor, needle)
        if data is not None:
            yield from _lines(data, _shown(shown, entry), fits)
        yield None


def _shown(shown: str, entry: Entry) -> str:
    return str(PurePosixPath(shown, *entry.parts))


def _text_of(descriptor: int, needle: bytes) -> bytes | None:
    """Read a file and close it; None when it is too large, no text, or without the needle."""
    try:
        data = more = os.read(descriptor, BLOCK_BYTES)
        while len(more) == BLOCK_BYTES and len(data) <= MOST_FILE_BYTES:
            more = os.read(descriptor, BLOCK_BYTES)
            data += more
    finally:
        os.close(descriptor)
    is_text = len(data) <= MOST_FILE_BYTES and b"\0" not in data[:PROBE_BYTES]
    return data if is_text and needle in data else None


def _lines(data: bytes | None, shown: str, fits: Callable[[str], object]) -> Generator[str]:
    for number, line in enumerate((data or b"").decode("utf-8", "replace").split("\n"), start=1):
        if fits(line):
            yield f"{shown}:{number}: {line.strip()[:MOST_LINE_CHARS]}"


def encode_request(place: Place, query: Query) -> bytes:
    """Write what the hidden verb reads."""
    closed = sorted(place.closed.known), list(map(str, place.closed.places))
    return json.dumps([str(place.root), str(place.path), *closed, *astuple(query), os.getpid()]).encode("ascii")


def decode_request(request: bytes) -> tuple[Place, Query, int]:
    """Read what `encode_request` wrote; the number is the process to end with."""
    root, path, known, places, pattern, shown, most, timeout_s, parent = json.loads(request)
    closed = Closed(frozenset((device, inode) for device, inode in known), tuple(map(Path, places)))
    place = Place(Path(root), Path(path), closed)
    return place, Query(pattern, shown, most, timeout_s), parent


def serve_search(request: bytes, write: Callable[[str], object]) -> int:
    """Answer one request in the process of the hidden verb; return its exit code."""
    place, query, parent = decode_request(request)
    die_with_parent(parent)
    try:
        return _write_lines(place, query, write)
    except (re.error, OverflowError, RecursionError) as error:
        write(f"not a regular expression: {error}\n")
    except OSError as error:
        write(f"cannot search in {query.shown}: {error.strerror}\n")
    except OutsideSandbox as error:
        write(f"{error.user_text}\n")
    return FAILED


def _write_lines(place: Place, query: Query, write: Callable[[str], object]) -> int:
    fits = re.compile(query.pattern).search
    lines = (line for line in search_place(place, query.shown, fits) if line is not None)
    for count, line in enumerate(lines, start=1):
        write(f"{line}\n")
        if count == query.most:
            return MORE
    return FINISHED


def _result(lines: list[str], query: Query, *, is_all: bool) -> ToolResult:
    shown = [*lines, *([] if is_all else [MORE_NOTE])]
    return ToolResult(True, "\n".join(shown) or f"no line in {query.shown} matches {query.pattern!r}")


def _number(arguments: Mapping[str, JsonValue], name: str, default: int) -> int:
    value = arguments.get(name)
    return value if isinstance(value, int) else default
