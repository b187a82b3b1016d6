"""The whole daemon in a process of its own, with a platform that takes messages of guests, and tools that bring words
of others. Imported once; each daemon is a fork.

Run as `python -m tests.proof.fooled.house`, with a daemon's keys in its environment. A line of JSON on stdin is the
environment of one daemon, the answer its pid. With the end of stdin every one of them ends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

from fermix.addresses import is_public
from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.providers import openai_chat
from fermix.agent.tools.catalog import ToolDeps, build_tools
from fermix.cli.verbs import run
from fermix.daemon import serve as composition
from fermix.gateway import Gateway, Rooms
from fermix.message import File, Message, Reply
from fermix.public import PublicWeb
from fermix.trust import PolicyClass
from tests.fakes.channel import FakeChannel
from tests.fakes.platform import Platform
from tests.proof.fooled.sink import LOCAL, PUBLIC
from tests.proof.fooled.twins import TWINS
from tests.proof.lives import _die_with_the_parent

CHANNEL = "telegram"
PRELOADED = (openai_chat,)
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Watched(FakeChannel):
    """Shows in the log of the platform what is in the files that are sent, too."""

    async def send(self, message: Message, reply: Reply, key: str) -> str:
        if isinstance(reply, File):
            reply = replace(reply, caption=f"{reply.caption} {base64.b64encode(reply.data).decode()}")
        return await super().send(message, reply, key)


class Names:
    """The resolver of this internet. One name leads inside at once, one among others, one only when asked again."""

    def __init__(self) -> None:
        self._asked = 0

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self._asked += 1
        match host:
            case "inside.example":
                return (LOCAL,)
            case "both.example":
                return (PUBLIC, LOCAL)
            case "turning.example":
                return (PUBLIC,) if self._asked % 2 else (LOCAL,)
            case "metadata.example":
                return ("169.254.169.254",)
            case _:
                return (PUBLIC,) if host.endswith(".example") else (host,)


def _is_allowed(address: str) -> bool:
    return address == PUBLIC or is_public(address)


def tools(deps: ToolDeps) -> Sequence[Capability]:
    """The product's own, and one of each kind that brings words of others: they lie in files of the test."""
    pages, told = Path(os.environ["FOOLED_PAGES"]), Path(os.environ["FOOLED_TOLD"])

    async def tell(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        _note(told, str(arguments["name"]))  # what it is asked has left the machine
        page = pages / quote(str(arguments["name"])[:99], safe="")
        text = page.read_text(encoding="utf-8") if page.exists() else "nothing new"
        return ToolResult(not text.startswith("error"), text)

    def foreign(name: str, kind: Kind, policy: PolicyClass, source: str = "") -> Capability:
        return Capability(name, "tells what is new", NAME, kind, policy, owner_only=False, run=tell, source=source)

    return (
        *build_tools(deps),
        foreign("news", Kind.BUILTIN, PolicyClass.NETWORK),
        foreign("mcp_notes_list", Kind.MCP, PolicyClass.READ_ONLY, "notes"),
        foreign("mail_read", Kind.BUILTIN, PolicyClass.READ_ONLY, "mail"),
    )


def _note(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def live() -> int:
    """Be the daemon, to its end."""
    open_gateway = Gateway.open
    channel = Watched(CHANNEL, platform=Platform(path=Path(os.environ["FOOLED_PLATFORM"])), can=("files",))

    @asynccontextmanager
    async def opened(rooms: Rooms) -> AsyncGenerator[Gateway]:
        async with open_gateway(rooms) as gateway, asyncio.TaskGroup() as group:
            polling = group.create_task(channel.poll(gateway.ingest))
            yield gateway
            polling.cancel()

    composition.PublicWeb = partial(PublicWeb, resolve=Names().resolve, is_allowed=_is_allowed)  # type: ignore[misc]
    composition.Gateway.open = opened  # type: ignore[method-assign, assignment]
    if twin := os.environ.get("FOOLED_TWIN"):
        TWINS[twin].breaking()
    return run.main([], tools=tools)


def main() -> None:
    _die_with_the_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the test sees by itself when one ends
    for line in sys.stdin:
        environ: dict[str, str] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _be_born(environ)
        print(pid, flush=True)


def _be_born(environ: Mapping[str, str]) -> None:
    code = 70
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _die_with_the_parent()
    try:
        os.environ.clear()
        os.environ.update(environ)
        errors = os.open(environ["FOOLED_ERRORS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, target in ((0, nothing), (1, nothing), (2, errors)):
            os.dup2(target, number)
        os.setsid()
        os.chdir(environ["FOOLED_LAUNCH"])
        code = live()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
