"""Real daemons that start quickly and die where a test says: all is imported once, then each life is a fork.

Run as `python -m tests.proof.lives`. A line of JSON on stdin is the environment of one life; the answers are its pid
and, once it is over, its exit code (negative: the signal). A life is the daemon as `fermix --daemon` runs it, with
one difference that stands here and not in the product: a task factory counts the steps of the tasks that carry a
message, from the moment one is read, and ends the process at the step that PROOF_KILL_AT names.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fermix.agent.capability import Capability, ToolContext
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.providers import openai_chat
from fermix.agent.tools.catalog import ToolDeps
from fermix.channels import local
from fermix.cli.verbs import run
from fermix.daemon import serve as composition
from fermix.message import Attachment, Message, Reply
from fermix.trust import PolicyClass
from tests.fakes.channel import FakeChannel
from tests.fakes.platform import Platform
from tests.fakes.transcriber import media_step
from tests.fakes.turns import make_capability
from tests.proof.twins import ALBUM_TWINS, TWINS

COUNTED = ("intake", "album", "lane", "turn", "delivery", "draft", "typing", "history", "client")
PR_SET_PDEATHSIG = 1
SPOKEN = "hello four"  # comes as a recording of these words
PART = "part "  # what begins so is a picture's caption in an album
ALBUM_QUIET_S = 0.4
PRELOADED = (openai_chat,)


class Steps:
    """Counts, and kills at one of them."""

    def __init__(self, kill_at: int) -> None:
        self.count = 0
        self._kill_at = kill_at
        self._armed = False

    def factory(self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> Any:
        return asyncio.Task(Stepped(coro, self), loop=loop, **options)

    def step(self) -> None:
        task = asyncio.current_task()
        name = task.get_name() if task else ""
        self._armed = self._armed or name.startswith("intake")
        if not self._armed or not name.startswith(COUNTED):
            return
        self.count += 1
        if self.count == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class Stepped(Coroutine[Any, Any, Any]):
    """A coroutine that counts each time it is taken up again."""

    def __init__(self, inner: Coroutine[Any, Any, Any], steps: Steps) -> None:
        self._inner = inner
        self._steps = steps

    def send(self, value: Any) -> Any:
        self._steps.step()
        return self._inner.send(value)

    def throw(self, *args: Any) -> Any:
        self._steps.step()
        return self._inner.throw(*args)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()


class SlowChannel(FakeChannel):
    """The platform takes what is sent, and its answer takes a moment longer."""

    async def send(self, message: Message, reply: Reply, key: str) -> str:
        await asyncio.sleep(0)
        sent = await super().send(message, reply, key)
        await asyncio.sleep(0)
        return sent

    async def _pieces(self, attachment: Attachment) -> AsyncGenerator[bytes]:
        for letter in attachment.reference:
            await asyncio.sleep(0)
            yield letter.encode()


typed = local.to_message


def speak(**said: Any) -> Message:
    """Make the message of a client, as a recording where the person speaks, as a part where he sends an album."""
    message = typed(**said)
    if message.text == SPOKEN:
        return replace(message, text="", attachments=(Attachment("audio", SPOKEN, "audio/ogg"),))
    return replace(message, album="al") if message.text.startswith(PART) else message


def tools(_: ToolDeps) -> Sequence[Capability]:
    """Two tools: one reads, one leaves a line behind."""
    left = Path(os.environ["PROOF_EFFECTS"])

    async def act(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        await asyncio.sleep(0)
        _leave(left, context.turn.message.id)
        await asyncio.sleep(0)
        return ToolResult(True, "done")

    return (make_capability("look"), make_capability("act", act, policy=PolicyClass.READ_WRITE))


def _leave(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def live() -> int:
    """Be the daemon, to its end."""
    steps = Steps(int(os.environ["PROOF_KILL_AT"]))
    serve = composition.serve

    async def counted(start: composition.Start) -> None:
        asyncio.get_running_loop().set_task_factory(steps.factory)
        await serve(start)

    if path := os.environ["PROOF_PLATFORM"]:
        limit = int(os.environ["PROOF_LIMIT"]) or None
        platform = Platform(
            path=Path(path), idempotent="idempotent" in os.environ["PROOF_CAN"], text_limit=limit, edit_interval_s=0.01
        )
        can = [ability for ability in ("lookup", "drafts") if ability in os.environ["PROOF_CAN"]]
        channel = SlowChannel("cli", platform=platform, can=["downloads", *can])  # type: ignore[list-item]
        composition.LocalChannel = lambda _: channel  # type: ignore[assignment,misc]
        composition.album_times = lambda _: {"cli": ALBUM_QUIET_S}
        composition.MediaStep = lambda *_: media_step()  # type: ignore[assignment,misc]
        local.to_message = speak
    if twin := os.environ["PROOF_TWIN"]:
        (TWINS | ALBUM_TWINS)[twin]()
    run.serve = counted  # type: ignore[assignment]
    try:
        return run.main([], tools=tools)
    finally:
        Path(os.environ["PROOF_COUNT"]).write_text(str(steps.count), encoding="utf-8")


def main() -> None:
    _die_with_the_parent()
    for line in sys.stdin:
        environ: dict[str, str] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _be_born(environ)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _die_with_the_parent() -> None:
    """Leave no daemon behind, however the test ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _be_born(environ: Mapping[str, str]) -> None:
    code = 70
    _die_with_the_parent()
    try:
        os.environ.clear()
        os.environ.update(environ)
        errors = os.open(environ["PROOF_ERRORS"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, target in ((0, nothing), (1, nothing), (2, errors)):
            os.dup2(target, number)
        os.setsid()
        code = live()
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
