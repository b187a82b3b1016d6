"""The three companies that make pictures, on loopback, each as strict as the real one about what it is sent.

Which fields, headers and answers are right comes from the companies' own references.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import BodyPartReader, web

KEY = "picture-key-0123456789"
PNG = b"\x89PNG\r\n\x1a\n" + b"painted"
JPEG = b"\xff\xd8\xff\xe0painted"
WEBP = b"RIFF\x10\0\0\0WEBPpainted"
OPENAI_SIZES = ("1024x1024", "1536x1024", "1024x1536", "auto")
OPENAI_FIELDS = {"model", "prompt", "n", "size", "quality", "background", "output_format", "moderation", "user"}
XAI_FIELDS = {"model", "prompt", "n", "response_format", "aspect_ratio", "resolution", "image", "user"}
GOOGLE_FIELDS = {"contents", "generationConfig", "systemInstruction", "safetySettings"}


@dataclass
class Painter:
    """`paints` is every picture; `answer` is sent instead. `asked` holds what was accepted, by path and field."""

    paints: bytes = PNG
    answer: web.Response | None = None
    asked: list[tuple[str, dict[str, object]]] = field(default_factory=list[tuple[str, dict[str, object]]])
    files: dict[str, tuple[str, str, bytes]] = field(default_factory=dict[str, tuple[str, str, bytes]])
    base_url: str = ""

    async def openai(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return _error(401, "Incorrect API key provided: picture-key")
        edits = request.path.endswith("/edits")
        fields = await self._form(request) if edits else json.loads(await request.read())
        unknown = set(fields) - OPENAI_FIELDS
        if unknown or fields.get("size", "auto") not in OPENAI_SIZES or (edits and "image" not in self.files):
            return _error(400, f"Unknown parameter: {unknown}")
        return self._paint(request, fields, {"data": [{"b64_json": _base64(self.paints)}], "usage": {}})

    async def xai(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"code": "unauthenticated", "error": "Invalid API key"}, status=401)
        fields = json.loads(await request.read())
        edits = request.path.endswith("/edits")
        if set(fields) - XAI_FIELDS or edits != ("image" in fields):
            return web.json_response({"code": "invalid-argument", "error": "unknown field"}, status=400)
        if fields.get("response_format") != "b64_json":
            return self._paint(request, fields, {"data": [{"url": "https://elsewhere.example/x.jpg"}]})
        return self._paint(request, fields, {"data": [{"b64_json": _base64(self.paints)}]})

    async def google(self, request: web.Request) -> web.Response:
        if request.headers.get("x-goog-api-key") != KEY:
            return _error(403, "API key not valid")
        fields = json.loads(await request.read())
        if set(fields) - GOOGLE_FIELDS or not fields["contents"][0]["parts"]:
            return _error(400, "Invalid JSON payload received")
        part = {"inlineData": {"mimeType": "image/png", "data": _base64(self.paints)}}
        candidate = {"content": {"role": "model", "parts": [{"text": "Here it is:"}, part]}, "finishReason": "STOP"}
        return self._paint(request, fields, {"candidates": [candidate], "usageMetadata": {}})

    def _paint(self, request: web.Request, fields: dict[str, object], answer: object) -> web.Response:
        self.asked.append((request.path, fields))
        return self.answer or web.json_response(answer)

    async def _form(self, request: web.Request) -> dict[str, object]:
        fields: dict[str, object] = {}
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            if part.filename is None:
                fields[part.name or ""] = await part.text()
            else:
                kind = part.headers.get("Content-Type", "")
                self.files[part.name or ""] = part.filename, kind, bytes(await part.read())
        return fields


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "invalid_request_error"}}, status=status)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


@asynccontextmanager
async def painting(**how: object) -> AsyncGenerator[Painter]:
    """Serve on a free loopback port: /openai/v1, /xai/v1 and /google/v1beta are the base addresses."""
    painter = Painter(**how)  # pyright: ignore[reportArgumentType] - the fields of the fake
    app = web.Application(client_max_size=64 << 20)
    app.add_routes(
        [
            *(web.post(f"/openai/v1/images/{last}", painter.openai) for last in ("generations", "edits")),
            *(web.post(f"/xai/v1/images/{last}", painter.xai) for last in ("generations", "edits")),
            web.post("/google/v1beta/models/{model}:generateContent", painter.google),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        painter.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield painter
    finally:
        await runner.cleanup()
