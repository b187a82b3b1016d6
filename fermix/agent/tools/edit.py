"""file_write and file_edit: make and change text files. Every path goes through the sandbox of the turn.

A file is replaced whole or stays as it was. An edit keeps what it does not touch byte for byte: line endings, a byte
order mark, a last line without an end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonValue, ToolResult, valid_text
from fermix.agent.sandbox import Sandbox
from fermix.agent.turn import Turn
from fermix.errors import Unusable
from fermix.trust import PolicyClass
from fermix.workers import Workers

MOST_BYTES = 10_000_000  # larger files are data, which a program writes
MOST_COUNTED = 100


def tools(sandbox: Sandbox, workers: Workers) -> tuple[Capability, ...]:
    """Build the two tools."""
    return (
        Capability(
            name="file_write",
            description="Write a whole text file; replaces what it held.",
            parameters={
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1},
                    "content": {"type": "string", "maxLength": MOST_BYTES},
                    "mkdir": {"type": "boolean", "description": "make missing folders, default true"},
                },
                "required": ["path", "content"],
                "additionalProperties": False,
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_WRITE,
            owner_only=True,
            run=FileWriter(sandbox, workers).run,
            category="files",
            when_to_use="to make a text file, or to replace one as a whole",
        ),
        Capability(
            name="file_edit",
            description="Replace one part of a text file. old_string must occur exactly once.",
            parameters={
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1},
                    "old_string": {"type": "string", "minLength": 1, "maxLength": MOST_BYTES},
                    "new_string": {"type": "string", "maxLength": MOST_BYTES},
                },
                "required": ["path", "old_string", "new_string"],
                "additionalProperties": False,
            },
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_WRITE,
            owner_only=True,
            run=FileEditor(sandbox, workers).run,
            category="files",
            when_to_use="to change a part of a text file that was read before",
        ),
    )


class FileWriter:
    """file_write."""

    def __init__(self, sandbox: Sandbox, workers: Workers) -> None:
        self._sandbox = sandbox
        self._workers = workers

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        path, data = str(arguments["path"]), valid_text(str(arguments["content"])).encode("utf-8")
        if len(data) > MOST_BYTES:
            return ToolResult(False, f"content has {len(data)} bytes, at most {MOST_BYTES} can be written at once")
        make_folders = arguments.get("mkdir") is not False
        try:
            return await self._workers.run(self._write, context.turn, path, data, make_folders)
        except FileNotFoundError:
            advice = "the open folder that holds it is gone" if make_folders else "mkdir=true makes it"
            return ToolResult(False, f"the folder of {path} is not there; {advice}")
        except OSError as error:
            return _cannot("write", path, error)

    def _write(self, turn: Turn, path: str, data: bytes, make_folders: bool) -> ToolResult:
        if path.endswith("/"):
            return ToolResult(False, f"{path} names a folder; give the name of a file")
        is_new = self._sandbox.find_to_change(turn, path).write(data, make_folders=make_folders)
        return ToolResult(True, f"wrote {len(data)} bytes to {path} ({'a new file' if is_new else 'replaced'})")


class FileEditor:
    """file_edit."""

    def __init__(self, sandbox: Sandbox, workers: Workers) -> None:
        self._sandbox = sandbox
        self._workers = workers

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        path = str(arguments["path"])
        old, new = (valid_text(str(arguments[name])) for name in ("old_string", "new_string"))
        if old == new:
            return ToolResult(False, "old_string and new_string are the same; nothing was changed")
        try:
            return await self._workers.run(self._edit, context.turn, path, old, new)
        except OSError as error:
            return _cannot("edit", path, error)

    def _edit(self, turn: Turn, path: str, old: str, new: str) -> ToolResult:
        place = self._sandbox.find_to_change(turn, path)
        with os.fdopen(place.open_file(), "rb") as file:
            seen = os.fstat(file.fileno())
            text = _as_text(file.read(MOST_BYTES + 1), path)
        if _is_crlf(text):
            old, new = _with_crlf(old), _with_crlf(new)
        count = occurrences(text, old)
        if count != 1:
            return ToolResult(False, _why_not(text, old, count, path))
        before, _, after = text.partition(old)
        data = f"{before}{new}{after}".encode()
        if len(data) > MOST_BYTES:
            return ToolResult(False, f"{path} would grow over {MOST_BYTES} bytes; nothing was changed")
        place.rewrite(seen, data)
        line = before.count("\n") + 1
        return ToolResult(True, f"changed {path} at line {line}; it has {len(data)} bytes now")


def occurrences(text: str, part: str) -> int:
    """Count at how many places a part begins, overlapping ones too, up to a hundred."""
    count, start = 0, text.find(part)
    while start >= 0 and count < MOST_COUNTED:
        count, start = count + 1, text.find(part, start + 1)
    return count


def _as_text(data: bytes, path: str) -> str:
    """Raises: Unusable for what cannot be changed without harm."""
    if len(data) > MOST_BYTES:
        problem = f"{path} has more than {MOST_BYTES} bytes; change it with shell"
    elif b"\0" in data:
        problem = f"{path} is a binary file; it has no text to change"
    else:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            problem = f"{path} is not UTF-8 (byte {error.start}); change it with shell"
    raise Unusable(problem, user_text=problem)


def _is_crlf(text: str) -> bool:
    return "\r\n" in text and text.count("\n") == text.count("\r\n")


def _with_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _why_not(text: str, old: str, count: int, path: str) -> str:
    if count:
        shown = f"{count} times" if count < MOST_COUNTED else f"{count} times or more"
        return f"old_string occurs {shown} in {path}; give more of the text around it, so that it occurs once"
    if " ".join(old.split()) in " ".join(text.split()):
        return f"old_string is not in {path}, but differs in white space or line ends only; read it and copy it exactly"
    return f"old_string is not in {path}; read the file and copy the part exactly"


def _cannot(verb: str, path: str, error: OSError) -> ToolResult:
    if isinstance(error, IsADirectoryError):
        return ToolResult(False, f"{path} is a folder; give the name of a file")
    return ToolResult(False, f"cannot {verb} {path}: {error.strerror}; nothing was changed")
