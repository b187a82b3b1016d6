"""send_attachment and react: what a turn can put into its chat besides words. Offered where the chat takes it.

A file is opened through the sandbox, and its bytes are handed over: what was judged is what is sent. The effect is
written down first, so a turn that has sent something never runs again.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
import re
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import get_args

from fermix.agent.capability import CHANNEL, Capability, Kind, ToolContext
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.risk import why_shared
from fermix.agent.sandbox import Sandbox
from fermix.agent.turn import Turn, WayBack
from fermix.errors import ChannelUnavailable, Unusable
from fermix.message import File, FileKind, Reaction
from fermix.trust import PolicyClass
from fermix.workers import Workers

MOST_FILE_BYTES = 20 * 1024 * 1024  # held whole while it is sent; every platform takes more as a document
MOST_CAPTION_CHARS = 1_024
MOST_NAME_CHARS = 200
REMEMBERED_SENDS = 1_000  # a turn sends the same file once, whatever its model thinks; turns are shorter than this
SEND_TIMEOUT_S = 150.0

KINDS: dict[str, FileKind] = {kind: kind for kind in get_args(FileKind)}
MAIN_TYPES: dict[FileKind, str] = {"image": "image/", "audio": "audio/", "video": "video/", "voice": "audio/"}
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
MIME = r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$"
UNKNOWN_MIME = "application/octet-stream"


def tools(sandbox: Sandbox, workers: Workers) -> tuple[Capability, ...]:
    """Build both tools."""
    return _attachment_tool(SendAttachment(sandbox, workers)), _reaction_tool()


def _attachment_tool(sending: SendAttachment) -> Capability:
    tool = Capability(
        name="send_attachment",
        description="Send a file into this chat.",
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1, "maxLength": 4096},
                "kind": {"enum": [*KINDS], "description": "how it is shown, default: document"},
                "caption": {"type": "string", "maxLength": MOST_CAPTION_CHARS},
                "filename": {"type": "string", "maxLength": MOST_NAME_CHARS, "description": "default: its own"},
                "mime_type": {"type": "string", "pattern": MIME, "description": "default: by its name"},
            },
            "required": ["path"],
            "additionalProperties": False,
        },
        kind=Kind.BUILTIN,
        policy=PolicyClass.READ_ONLY,
        owner_only=True,
        run=sending.run,
        category=CHANNEL,
        when_to_use="when the person should get the file itself, not its contents as text",
        timeout_s=SEND_TIMEOUT_S,
        outside=False,
        asks=_asks,
        failure_modes=("addresses are refused: download first", f"at most {MOST_FILE_BYTES // 2**20} MiB"),
    )

    def fits(way_back: WayBack) -> Capability | None:
        return tool if way_back.files else None

    return replace(tool, fits=fits)


def _reaction_tool() -> Capability:
    tool = Capability(
        name="react",
        description="React to the message that you answer with an emoji. Alone and without words it ends your turn.",
        parameters={"type": "object", "properties": {"emoji": {"type": "string"}}, "required": ["emoji"]},
        kind=Kind.BUILTIN,
        policy=PolicyClass.READ_ONLY,
        owner_only=False,
        run=react,
        category=CHANNEL,
        when_to_use="when a sign says all there is to say",
        outside=False,
        ends_turn=True,
    )

    def fits(way_back: WayBack) -> Capability | None:
        if not way_back.reactions:
            return None
        emoji: JsonValue = {"enum": [*way_back.reactions]}
        return replace(tool, parameters={**tool.parameters, "properties": {"emoji": emoji}})

    return replace(tool, fits=fits)


async def react(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
    """Put an emoji on the message that is being answered."""
    emoji = str(arguments["emoji"])
    await context.port.effect("react")
    await context.port.send(Reaction(emoji))
    return ToolResult(True, f"reacted with {emoji}")


class SendAttachment:
    """The tool itself. Remembers what it has sent lately, and what may have arrived."""

    def __init__(self, sandbox: Sandbox, workers: Workers) -> None:
        self._sandbox = sandbox
        self._workers = workers
        self._sent: deque[str] = deque(maxlen=REMEMBERED_SENDS)

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        path = str(arguments["path"])
        if URL.match(path):
            return ToolResult(False, "only files on this machine can be sent; download it first, or give the address")
        try:
            file = await self._workers.run(self._read, context.turn, path, arguments)
        except OSError as error:
            return ToolResult(False, f"{path} cannot be read: {error.strerror}")
        claim = _claim(context.turn, file)
        if claim in self._sent:
            return ToolResult(True, f"{file.name} was sent in this turn already; it is not sent again")
        await context.port.effect("send_attachment")
        return await self._send(file, claim, context)

    async def _send(self, file: File, claim: str, context: ToolContext) -> ToolResult:
        self._sent.append(claim)
        try:
            await context.port.send(file)
        except ChannelUnavailable as error:
            if error.landed:
                return ToolResult(False, f"{file.name} may have arrived or not: {error}. Do not send it again; say so")
            self._sent.remove(claim)
            raise
        return ToolResult(True, f"sent {file.name} ({len(file.data):,} bytes)")

    def _read(self, turn: Turn, path: str, arguments: Mapping[str, JsonValue]) -> File:
        """Read the whole file as it is now. Raises: OutsideSandbox, Unusable, OSError."""
        place = self._sandbox.find(turn, path)
        with os.fdopen(place.open_file(), "rb") as file:
            data = file.read(MOST_FILE_BYTES + 1)
        if not data:
            raise Unusable(f"{path} is empty, so there is nothing to send")
        if len(data) > MOST_FILE_BYTES:
            raise Unusable(f"{path} is larger than {MOST_FILE_BYTES // 2**20} MiB; send a part of it")
        name = _file_name(str(arguments.get("filename") or place.path.name))
        mime = str(arguments.get("mime_type") or mimetypes.guess_type(name)[0] or UNKNOWN_MIME)
        kind = KINDS[str(arguments.get("kind", "document"))]
        if not mime.startswith(MAIN_TYPES.get(kind, "")):
            raise Unusable(f"{name} is {mime}, which cannot be sent as {kind}; send it as document")
        return File(data, name, kind, mime, str(arguments.get("caption", "")))


def _asks(arguments: Mapping[str, JsonValue], context: ToolContext) -> str | None:
    return None if context.turn.message.private else why_shared(context.exposure)


def _claim(turn: Turn, file: File) -> str:
    whole = (turn.id, file.kind, file.caption, file.name, file.mime, hashlib.sha256(file.data).hexdigest())
    return "\0".join(whole)


def _file_name(stated: str) -> str:
    """Keep the last part of a name, without what a screen or a file system would act upon."""
    kept = "".join(char for char in stated.replace("\\", "/").rsplit("/", 1)[-1] if char.isprintable()).strip(" .")
    return kept[:MOST_NAME_CHARS] or "file"
