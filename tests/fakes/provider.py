"""A model server that says what a script tells it, over real HTTP on loopback, in all three wire formats.

    async with ScriptedProvider([Answer(text="Hello"), Answer(calls=(Call("shell", {"command": "ls"}),))]) as fake:
        ...  # base_url=fake.base_url; afterwards fake.requests holds what was asked

It is strict: what a real server refuses gets a 4xx (see strict.py). It also runs alone, for flows in other processes:
`python -m tests.fakes.provider --port 0 --script FILE` prints its base URL; FILE holds
{"answers": [{"text": "Hello"}, ...], "repeat": true}.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from aiohttp import web

from tests.fakes import strict, wires
from tests.fakes.strict import WireName

PATHS: Mapping[str, WireName] = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "responses",
    "/v1/messages": "messages",
}
_STREAMS = {"chat": wires.chat_stream, "responses": wires.responses_stream, "messages": wires.messages_stream}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call to make; `arguments` as text are sent as they are, valid JSON or not."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of the script. The wire is that of the request.

    `echo` repeats the last user text after "echo: "; `tell` repeats, as JSON, all that came since the model spoke last
    (the results of its tools; chat wire only). `chunk_bytes` is the size of the network chunks. With `cut_bytes`
    the connection breaks after so many bytes; with `hold` the second half waits for the event. `raw` replaces the body.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    echo: bool = False
    tell: bool = False
    finish: Literal["length", "refusal"] | None = None
    input_tokens: int = 11
    output_tokens: int = 7
    cached_tokens: int | None = None
    delay_s: float = 0.0
    chunk_bytes: int | None = None
    cut_bytes: int | None = None
    hold: asyncio.Event | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    raw: bytes | None = None
    content_type: str = "text/event-stream"


def failure(status: int, message: str, *, headers: Mapping[str, str] | None = None, **fields: object) -> Answer:
    """An error answer in the common shape; `fields` join the error object, e.g. param="temperature"."""
    body = json.dumps({"error": {"message": message, "type": "error", **fields}}).encode()
    return Answer(status=status, raw=body, content_type="application/json", headers=headers or {})


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it arrived; header names in lower case."""

    wire: WireName
    headers: Mapping[str, str]
    body: Any
    raw: bytes

    @property
    def news(self) -> list[Any]:
        """The contents of the messages behind the model's last one."""
        contents: list[Any] = []
        for message in reversed(self.body["messages"]):
            if message["role"] == "assistant":
                break
            contents.insert(0, message["content"])
        return contents

    @property
    def last_user_text(self) -> str:
        items = self.body["input" if self.wire == "responses" else "messages"]
        contents = [item["content"] for item in items if item.get("role") == "user"]
        texts = [_text_of(content) for content in contents]
        return next((text for text in reversed(texts) if text), "")


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part.get("type") in ("text", "input_text"))


Script = Sequence[Answer] | Callable[[Asked], Answer]


class ScriptedProvider:
    """The server. `dropped` counts answers whose reader went away; `refusals` are the sentences of its own 4xx."""

    def __init__(self, script: Script = (), *, repeat: bool = False, key: str | None = None, port: int = 0) -> None:
        self._script = script
        self._repeat = repeat
        self._key = key
        self._port = port
        self._next = 0
        self.requests: list[Asked] = []
        self.refusals: list[str] = []
        self.dropped = 0
        self.drop = asyncio.Event()
        self.base_url = ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=strict.MAX_BODY_BYTES * 2)
        app.add_routes([web.post(path, self._answer) for path in PATHS])
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        if not self._admitted(request):
            return web.json_response({"error": {"message": "invalid api key"}}, status=401)
        return web.json_response({"object": "list", "data": [{"id": wires.MODEL, "object": "model"}]})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        wire = PATHS[request.path]
        if not self._admitted(request):
            return web.json_response(
                {"error": {"message": "invalid api key", "type": "authentication_error"}}, status=401
            )
        try:
            body = strict.check(wire, raw)
        except strict.Refused as error:
            self.refusals.append(str(error))
            return web.json_response({"error": {"message": str(error), "type": "invalid_request_error"}}, status=400)
        asked = Asked(wire, {name.lower(): value for name, value in request.headers.items()}, body, raw)
        self.requests.append(asked)
        answer = self._choose(asked)
        await asyncio.sleep(answer.delay_s)
        return await self._send(request, answer, _content(answer, asked))

    def _admitted(self, request: web.Request) -> bool:
        given = request.headers.get("x-api-key") or request.headers.get("Authorization", "").removeprefix("Bearer ")
        return self._key is None or given == self._key

    def _choose(self, asked: Asked) -> Answer:
        if callable(self._script):
            return self._script(asked)
        at = min(self._next, len(self._script) - 1) if self._repeat else self._next
        self._next += 1
        if not 0 <= at < len(self._script):
            return failure(500, f"the script has no answer number {at + 1}")
        return self._script[at]

    async def _send(self, request: web.Request, answer: Answer, content: bytes) -> web.StreamResponse:
        response = web.StreamResponse(
            status=answer.status, headers={"Content-Type": answer.content_type, **answer.headers}
        )
        await response.prepare(request)
        try:
            async for chunk in _chunks(answer, content):
                await response.write(chunk)
            if answer.cut_bytes is not None:
                await self._break(request)
            await response.write_eof()
        except (asyncio.CancelledError, ConnectionError):
            self.dropped += 1
            self.drop.set()
            raise
        return response

    async def _break(self, request: web.Request) -> None:
        await asyncio.sleep(0)
        if request.transport is not None:
            request.transport.close()


def _content(answer: Answer, asked: Asked) -> bytes:
    if answer.raw is not None:
        return answer.raw
    if answer.echo:
        answer = Answer(text=f"echo: {asked.last_user_text}")
    if answer.tell:
        answer = Answer(text=json.dumps(asked.news))
    return _STREAMS[asked.wire](answer)


async def _chunks(answer: Answer, content: bytes) -> AsyncIterator[bytes]:
    content = content[: answer.cut_bytes]
    half = content.find(b"\n\n", len(content) // 2) + 2 if answer.hold is not None else len(content)
    size = answer.chunk_bytes or max(len(content), 1)
    for at in range(0, half, size):
        yield content[at : min(at + size, half)]
        if answer.chunk_bytes:
            await asyncio.sleep(0)  # lets each chunk travel alone
    if answer.hold is not None:
        await answer.hold.wait()
        yield content[half:]


def read_script(text: str, *, port: int = 0) -> ScriptedProvider:
    """Build a server from a script file; a call there is {"name": ..., "arguments": ...}, a raw body is text."""
    script = json.loads(text)
    answers = [_read_answer(**answer) for answer in script["answers"]]
    return ScriptedProvider(answers, repeat=script.get("repeat", False), key=script.get("key"), port=port)


def _read_answer(*, calls: Sequence[Mapping[str, Any]] = (), raw: str | None = None, **fields: Any) -> Answer:
    return Answer(calls=tuple(Call(**call) for call in calls), raw=None if raw is None else raw.encode(), **fields)


async def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, required=True)
    options = parser.parse_args()
    async with read_script(options.script.read_text(encoding="utf-8"), port=options.port) as fake:
        sys.stdout.write(fake.base_url + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main())
