"""The three hosted speech services on loopback, each as strict as the real one about what it is sent.

Which fields, headers and answers are right comes from the services' own references; the form of OpenAI is also spoken
to it by the official Python client, by hand and in no test.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import BodyPartReader, web

KEY = "speech-key-0123456789"
OPENAI_MODELS = ("gpt-4o-mini-transcribe", "gpt-4o-transcribe", "whisper-1")
OPENAI_FIELDS = ("file", "model", "response_format", "language", "prompt", "temperature")
OPENAI_ENDINGS = ("flac", "m4a", "mp3", "mp4", "mpeg", "mpga", "oga", "ogg", "wav", "webm")
XAI_FIELDS = ("file", "url", "format", "language", "diarize")

Take = Callable[[web.Request], Awaitable[tuple[str, object]]]
"""Reads a request: the sentence of a 400 or "", and the answer."""


@dataclass
class Heard:
    """One accepted request."""

    audio: bytes
    fields: dict[str, str]
    filename: str
    content_type: str


@dataclass
class SpeechServices:
    """`says` is the transcript of everything; `answer` is sent instead of a transcript."""

    says: str = "hello there"
    answer: web.Response | None = None
    heard: list[Heard] = field(default_factory=list[Heard])
    refused: list[str] = field(default_factory=list[str])
    base_url: str = ""

    async def openai(self, request: web.Request) -> web.StreamResponse:
        return await self._handle(request, "Bearer", self._openai_form)

    async def xai(self, request: web.Request) -> web.StreamResponse:
        return await self._handle(request, "Bearer", self._xai_form)

    async def deepgram(self, request: web.Request) -> web.StreamResponse:
        return await self._handle(request, "Token", self._deepgram_body)

    async def _handle(self, request: web.Request, scheme: str, take: Take) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"{scheme} {KEY}":
            return self._refuse(401, f"Incorrect API key provided: {request.headers.get('Authorization')}")
        problem, answer = await take(request)
        if problem:
            return self._refuse(400, problem)
        return self.answer or web.json_response(answer)

    def _refuse(self, status: int, sentence: str) -> web.Response:
        self.refused.append(sentence)
        return web.json_response({"error": {"message": sentence}}, status=status)

    async def _openai_form(self, request: web.Request) -> tuple[str, object]:
        problem, got = await _read_form(request, OPENAI_FIELDS)
        if problem or got is None:
            return problem, None
        if got.fields.get("model") not in OPENAI_MODELS:
            return f"invalid model {got.fields.get('model')!r}", None
        if got.fields.get("response_format", "json") != "json":
            return "response_format is not compatible with this model", None
        if got.filename.rpartition(".")[2] not in OPENAI_ENDINGS:
            return f"Unrecognized file format. Supported formats: {OPENAI_ENDINGS}", None
        self.heard.append(got)
        return "", {"text": self.says, "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 45}}

    async def _xai_form(self, request: web.Request) -> tuple[str, object]:
        problem, got = await _read_form(request, XAI_FIELDS)
        if problem or got is None:
            return problem, None
        if "format" in got.fields and "language" not in got.fields:
            return "format needs language", None
        self.heard.append(got)
        return "", {"text": self.says, "language": "English", "duration": 3.45, "words": []}

    async def _deepgram_body(self, request: web.Request) -> tuple[str, object]:
        if request.query.get("model") != "nova-3" or not re.match(
            "audio/|video/|application/oct", request.content_type
        ):
            return "Bad Request: failed to process audio: corrupt or unsupported data", None
        audio = await request.read()
        if not audio:
            return "Bad Request: empty body", None
        self.heard.append(Heard(audio, dict(request.query), "", request.content_type))
        alternative = {"transcript": self.says, "confidence": 0.99, "words": []}
        return "", {"metadata": {"duration": 3.4}, "results": {"channels": [{"alternatives": [alternative]}]}}


async def _read_form(request: web.Request, known: tuple[str, ...]) -> tuple[str, Heard | None]:
    if request.content_type != "multipart/form-data":
        return f"expected multipart/form-data, not {request.content_type}", None
    fields: dict[str, str] = {}
    got: Heard | None = None
    async for part in await request.multipart():
        assert isinstance(part, BodyPartReader)
        if part.name not in known:
            return f"Unknown parameter: {part.name!r}", None
        if got is not None:
            return "the file must be the last field", None
        if part.name == "file":
            got = Heard(bytes(await part.read()), fields, part.filename or "", part.headers.get("Content-Type", ""))
        else:
            fields[part.name] = await part.text()
    if got is None or not got.filename or not got.audio:
        return "file: a non-empty file with a name is required", None
    return "", got


@asynccontextmanager
async def speech_services(**how: object) -> AsyncGenerator[SpeechServices]:
    """Serve on a free loopback port: /openai/v1, /xai/v1 and /deepgram/v1 are the base addresses."""
    services = SpeechServices(**how)  # pyright: ignore[reportArgumentType] - the fields of the fake
    app = web.Application(client_max_size=64 << 20)
    app.add_routes(
        [
            web.post("/openai/v1/audio/transcriptions", services.openai),
            web.post("/xai/v1/stt", services.xai),
            web.post("/deepgram/v1/listen", services.deepgram),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        services.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield services
    finally:
        await runner.cleanup()
