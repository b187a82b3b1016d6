"""generate_image: make or change a picture, keep it in the workspace and send it. One request a call, never repeated.

Offered only when there is a key, and with what that company can do. What must stay true: the file has our own name in
the workspace's media folder, and is a picture by its first bytes.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from fermix.agent.budget import Books, TurnRef
from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonObject, JsonValue, ToolResult, valid_text
from fermix.agent.providers.fields import load_json
from fermix.agent.sandbox import Sandbox
from fermix.agent.tools.image.choice import Backend
from fermix.agent.tools.image.pictures import ENDINGS, Picture, picture_of
from fermix.agent.tools.image.wires import WIRES, Wish, problem_in
from fermix.agent.turn import Turn
from fermix.errors import ChannelUnavailable, LimitReached, Unavailable, Unusable
from fermix.message import File
from fermix.net import Net, Timeouts
from fermix.trust import PolicyClass
from fermix.workers import Workers

PATIENCE = Timeouts(connect_s=10.0, chunk_s=300.0, total_s=300.0)
MOST_ANSWER_BYTES = 50_331_648  # Base64 makes four bytes of three
MOST_INPUT_BYTES = 20_971_520
MOST_PROMPT_CHARS = 16_000
SHOWN_CHARS = 300
INBOUND = "inbound:last"
FOLDER = "media"


def tools(
    sandbox: Sandbox, workers: Workers, net: Net, backend: Backend | None, books: Books
) -> tuple[Capability, ...]:
    """Build the tool; none without a backend, since its schema could not work."""
    if backend is None:
        return ()
    return (
        Capability(
            name="generate_image",
            description=f"Make a picture from words, or change one, by {backend.label}. It costs the owner money.",
            parameters=_parameters(backend),
            kind=Kind.BUILTIN,
            policy=PolicyClass.EXTERNAL_API,
            owner_only=True,
            run=ImageMaker(sandbox, workers, net, backend, books).run,
            category="media",
            when_to_use="when a picture is wanted; say all that it should show in the prompt",
            timeout_s=330.0,
            outside=False,
            failure_modes=("the company refuses what breaks its rules", "a picture takes up to some minutes"),
        ),
    )


def _parameters(backend: Backend) -> JsonObject:
    wire = WIRES[backend.name]
    path: JsonObject = {"type": "string", "minLength": 1, "maxLength": 4_096}
    source = f'picture to edit: a path, or "{INBOUND}" for the one that came with this message'
    mask: JsonObject = {**path, "description": "path of a PNG of the same size, clear where the picture may change"}
    return {
        "type": "object",
        "properties": {
            "prompt": {"type": "string", "minLength": 1, "maxLength": MOST_PROMPT_CHARS},
            "operation": {"type": "string", "enum": ["generate", "edit"], "description": "default: generate"},
            "input_image": {**path, "description": source},
            **({"mask": mask} if wire.masks else {}),
            "size": {"type": "string", "enum": list(wire.sizes)},
            "model": {
                "type": "string",
                "pattern": r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$",
                "description": f"default: {backend.model}",
            },
            "delivery": {
                "type": "string",
                "enum": ["send", "save"],
                "description": "send puts it into the chat as well; default: send",
            },
        },
        "required": ["prompt"],
        "additionalProperties": False,
    }


class ImageMaker:
    """The tool itself."""

    def __init__(self, sandbox: Sandbox, workers: Workers, net: Net, backend: Backend, books: Books) -> None:
        self._sandbox = sandbox
        self._workers = workers
        self._net = net
        self._backend = backend
        self._books = books
        self._wire = WIRES[backend.name]

    async def run(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        if (problem := self._unfit(arguments)) is not None:
            return ToolResult(False, problem)
        try:
            wish = await self._wish(arguments, context.turn)
        except OSError as error:
            return ToolResult(False, f"the picture cannot be read: {error.strerror} ({error.filename})")
        status, answer = await self._ask(wish)
        if status != 200:
            return self._failed(status, answer)
        turn = TurnRef(context.turn.id, context.turn.key)
        self._books.note(self._backend.name, wish.model, "image", turn=turn)
        picture = await self._workers.run(self._picture, answer)
        if isinstance(picture, str):
            return ToolResult(False, picture)
        path = await self._workers.run(self._keep, context.turn, picture)
        sent = "" if arguments.get("delivery") == "save" else await _send(path, picture, context)
        return ToolResult(True, f"the picture is in {path} ({len(picture.data):,} bytes){sent}")

    def _unfit(self, arguments: Mapping[str, JsonValue]) -> str | None:
        """Say what cannot go together, before anything is read or paid for."""
        edits = arguments.get("operation") == "edit"
        if edits and "input_image" not in arguments:
            return f'an edit needs input_image: a path, or "{INBOUND}" for the picture that came with this message'
        if not edits and not {"input_image", "mask"}.isdisjoint(arguments):
            return "input_image and mask are for operation edit"
        if edits and "size" in arguments and arguments["size"] not in self._wire.edit_sizes:
            return f"{self._backend.label} keeps the shape of a picture that it edits; leave out size"
        return None

    async def _wish(self, arguments: Mapping[str, JsonValue], turn: Turn) -> Wish:
        """Raises: OutsideSandbox, Unusable, OSError."""
        source, mask, size = arguments.get("input_image"), arguments.get("mask"), arguments.get("size")
        image = await self._workers.run(self._source, turn, str(source)) if source is not None else None
        cover = await self._workers.run(self._read, turn, str(mask)) if mask is not None else None
        if cover is not None and cover.mime != "image/png":
            raise _unusable(f"{mask} is no PNG; a mask is one, clear where the picture may change")
        model = str(arguments.get("model") or self._backend.model)
        return Wish(valid_text(str(arguments["prompt"])), model, None if size is None else str(size), image, cover)

    def _source(self, turn: Turn, source: str) -> Picture:
        if source != INBOUND:
            return self._read(turn, source)
        pictures = [media for media in turn.message.media if media.kind == "image"]
        if not pictures:
            raise _unusable("no picture came with this message; give the path of one")
        return _checked(pictures[-1].data, INBOUND)

    def _read(self, turn: Turn, path: str) -> Picture:
        with os.fdopen(self._sandbox.find(turn, path).open_file(), "rb") as file:
            return _checked(file.read(MOST_INPUT_BYTES + 1), path)

    async def _ask(self, wish: Wish) -> tuple[int, bytes]:
        """Raises: NetFailed, Refused, LimitReached."""
        call = self._wire.call(self._backend, wish)
        async with self._net.post_stream(call.url, headers=call.headers, body=call.body, timeouts=PATIENCE) as response:
            answer = await response.read(MOST_ANSWER_BYTES + 1)
        if len(answer) > MOST_ANSWER_BYTES:
            problem = f"{self._backend.label} sent more than {MOST_ANSWER_BYTES // 2**20} MiB; nothing was kept"
            raise LimitReached(problem, limit="bytes", user_text=problem)
        return response.status, answer

    def _failed(self, status: int, answer: bytes) -> ToolResult:
        """Say what went wrong; a company's own words are framed as words from outside."""
        label = self._backend.label
        try:
            message, is_moderated = problem_in(load_json(answer.decode("utf-8")))
        except ValueError:
            message, is_moderated = "", False
        if is_moderated and status < 500:
            return ToolResult(False, f"{label} refuses this picture by its own rules; ask for something else")
        if status in (401, 403):
            problem = (
                f"{label} does not accept the key; the owner checks it, or chooses another backend in `fermix setup`"
            )
            return ToolResult(False, problem)
        if status in (402, 429):
            return ToolResult(False, f"{label} makes no more pictures now: too many, or no credit; try again later")
        if status >= 500 or not message:
            raise Unavailable(f"{label} answered HTTP {status}", user_text=f"{label} answered HTTP {status}; try later")
        return ToolResult(False, f"{label} cannot do this (HTTP {status}): {message[:SHOWN_CHARS]}", outside=True)

    def _picture(self, answer: bytes) -> Picture | str:
        """Return the picture, or a sentence about why there is none. Blocking: the answer may be large."""
        label = self._backend.label
        try:
            found = self._wire.found(load_json(answer.decode("utf-8")))
            data = base64.b64decode(found.picture, validate=True)
        except (ValueError, binascii.Error):
            return f"{label} sent an answer that cannot be read"
        if found.elsewhere:
            return f"{label} sent an address instead of a picture; a gateway in between ignores what it is asked"
        if found.refused:
            return f"{label} refuses this picture by its own rules; ask for something else"
        return picture_of(data) or f"{label} sent no picture; say clearly what it should show"

    def _keep(self, turn: Turn, picture: Picture) -> Path:
        """Write it under a name of ours. Raises: OutsideSandbox, OSError."""
        workspace = self._sandbox.standing()[0].path
        path = workspace / FOLDER / f"image-{secrets.token_hex(6)}.{ENDINGS[picture.mime]}"
        self._sandbox.find_to_change(turn, str(path)).write(picture.data, make_folders=True)
        return path


async def _send(path: Path, picture: Picture, context: ToolContext) -> str:
    """Put it into the chat; return what to add to the result. The file is kept in any case."""
    if not context.turn.way_back.files:
        return "; this chat takes no files, so tell where it is"
    try:
        await context.port.send(File(picture.data, path.name, "image", picture.mime))
    except (ChannelUnavailable, Unusable) as error:
        if isinstance(error, ChannelUnavailable) and error.landed:
            return f"; it may have arrived in the chat or not: {error}. Do not send it again; say so"
        return f"; it could not be sent, so tell where it is: {error}"
    return " and was sent"


def _checked(data: bytes, name: str) -> Picture:
    if len(data) > MOST_INPUT_BYTES:
        raise _unusable(f"{name} is larger than {MOST_INPUT_BYTES // 2**20} MiB; give a smaller one")
    if (picture := picture_of(data)) is None:
        raise _unusable(f"{name} is no PNG, JPEG or WebP picture")
    return picture


def _unusable(problem: str) -> Unusable:
    return Unusable(problem, user_text=problem)
