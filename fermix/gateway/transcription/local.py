"""Listening on this machine: a Service that keeps one child while there is something to hear.

Recordings wait in one line, first come, first heard. The child starts with the first and ends after a while without
any. What must stay true: a recording goes to the child's memory and nowhere else; one that makes the child crash or
hang fails alone, and the next gets a new child; who no longer waits is not listened to.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from fermix.agent.providers.fields import a_text, an_object, load_json
from fermix.agent.providers.machine import check_memory, default_threads
from fermix.clock import Clock
from fermix.errors import NeedsOperator, ServerUnavailable, Unavailable, Unusable
from fermix.gateway.transcription.files import VoiceFiles
from fermix.gateway.transcription.listener import HEADER
from fermix.gateway.transcription.transcriber import NOT_YET, Audio, NoBackend
from fermix.native.child import Child, child_environment
from fermix.native.program import own_variables
from fermix.workers import Workers

log = logging.getLogger(__name__)

IDLE_S = 120.0
LOAD_S = 60.0  # a second from a warm cache, half a minute from a slow disk
LISTEN_S = 300.0  # half an hour of speech, the longest that is heard, takes two minutes on two cores
PATIENCE_S = 600.0  # what one waits in the line, its own time included
MAX_WAITING = 16
STARTS = 2
NEEDED_BYTES = 450 << 20  # measured: 250 MB loaded, 400 while it listens
VARIABLES = ("PATH", "HOME", "LANG", "LC_*", "TMPDIR", "XDG_*", "FERMIX_HOME", "FERMIX_EXE")
QUIET = {"HF_HUB_OFFLINE": "1", "ORT_DISABLE_TELEMETRY": "1"}
"""Some versions of what the engine is made of report to their makers; `listener.py` takes away the means as well."""


class ChildGone(ServerUnavailable):
    """The child ended by itself."""


class _Recording:
    """One in the line, and whoever waits for its words."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.words: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def fail(self, error: Exception) -> None:
        if not self.words.done():
            self.words.set_exception(error)

    def settle(self, line: str) -> None:
        """Take the child's answer, e.g. {"text": "ever tried"}."""
        try:
            answer = an_object(load_json(line))
        except ValueError:
            answer = {"problem": "what came back is no answer"}
        if problem := a_text(answer.get("problem")):
            self.fail(Unusable(f"the recording cannot be understood: {problem}"))
        elif not self.words.done():
            self.words.set_result(a_text(answer.get("text")))


class LocalListener:
    """Owns the child. `program` is the command that starts Fermix itself; `look` tells what is on this machine."""

    name = "local listening"

    def __init__(
        self,
        look: Callable[[], VoiceFiles],
        program: Sequence[str],
        environ: Mapping[str, str],
        workers: Workers,
        clock: Clock,
    ) -> None:
        self._look = look
        self._program = tuple(program)
        self._environ = environ
        self._workers = workers
        self._clock = clock
        self._line: asyncio.Queue[_Recording] = asyncio.Queue(MAX_WAITING)

    async def transcribe(self, audio: Audio) -> str:
        """Raises: NoBackend when the model or its engine is not here, Unavailable, Unusable."""
        files = await self._workers.run(self._look)
        if not await self._workers.run(lambda: files.ready):
            raise NoBackend(NOT_YET)
        recording = _Recording(audio.data)
        try:
            self._line.put_nowait(recording)
            async with asyncio.timeout(PATIENCE_S):
                return await recording.words
        except asyncio.QueueFull:
            raise Unavailable(f"{MAX_WAITING} recordings wait already") from None
        except TimeoutError:
            raise Unavailable(f"not heard within {PATIENCE_S:.0f} s") from None

    async def run(self, started: Callable[[], None]) -> None:
        """Listen for as long as the daemon lives. A child that ends is no failure of this service."""
        started()
        while True:
            recording = await self._line.get()
            for _ in range(STARTS):
                if recording.words.done() or await self._serve(recording):
                    break
            else:
                recording.fail(Unavailable("the child that listens does not start"))

    async def _serve(self, first: _Recording) -> bool:
        """Keep a child from the first recording on until none came for a while, or it ended; False: none started."""
        files = await self._workers.run(self._look)
        argv, env = self._argv(files), self._child_environment()
        try:
            check_memory(NEEDED_BYTES)
            async with Child.open(argv, cwd=files.folder, env=env, grace_s=0.0, told=True) as child:
                answers = child.lines()
                await _loaded(child, answers)
                recording: _Recording | None = first
                while recording is not None and await self._hear(child, answers, recording):
                    recording = await self._next(child)
        except (OSError, NeedsOperator, ChildGone) as error:
            log.warning("local listening: no child: %s", error)
            return False
        return True

    async def _hear(self, child: Child, answers: AsyncIterator[str], recording: _Recording) -> bool:
        """Ask for the words of one; False when the child is of no more use."""
        if recording.words.done():
            return True
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(_ask(child, answers, recording.data))
            await asyncio.wait((asking, recording.words), return_when=asyncio.FIRST_COMPLETED)
            asking.cancel()
        if asking.cancelled():
            return False  # nobody waits any more, and only its end stops the child from listening on
        line = asking.result()
        if line is None:
            log.warning("local listening: the child ended or took too long: %s", ascii(_last_words(child)))
            recording.fail(Unavailable("the child that listens ended over it"))
            return False
        recording.settle(line)
        return True

    async def _next(self, child: Child) -> _Recording | None:
        """Wait for another recording; None when none comes, or the child has ended."""
        async with asyncio.TaskGroup() as group:
            coming = group.create_task(self._line.get())
            idle = group.create_task(self._clock.sleep(IDLE_S))
            gone = group.create_task(child.wait())
            await asyncio.wait((coming, idle, gone), return_when=asyncio.FIRST_COMPLETED)
            for task in (coming, idle, gone):
                task.cancel()
        return None if coming.cancelled() else coming.result()

    def _argv(self, files: VoiceFiles) -> tuple[str, ...]:
        engine = files.engine_folder
        return (
            *self._program,
            "_listen",
            *("--model", str(files.folder)),
            *(("--engine", str(engine)) if engine else ()),
            *("--threads", str(default_threads())),
            *("--parent", str(os.getpid())),
        )

    def _child_environment(self) -> dict[str, str]:
        # Waiting threads that spin would take the cores from the model that answers.
        added = {"OMP_WAIT_POLICY": "passive", **QUIET, **own_variables(self._environ)}
        return child_environment(self._environ, VARIABLES) | added


async def _loaded(child: Child, answers: AsyncIterator[str]) -> None:
    try:
        async with asyncio.timeout(LOAD_S):
            if await anext(answers, None) is not None:
                return
    except TimeoutError:
        raise ChildGone(f"not ready after {LOAD_S:.0f} s") from None
    raise ChildGone(_last_words(child))


async def _ask(child: Child, answers: AsyncIterator[str], data: bytes) -> str | None:
    """Send a recording and wait for the line about it; None when the child ended or took too long."""
    try:
        async with asyncio.timeout(LISTEN_S):
            await child.write(HEADER.pack(len(data)))
            await child.write(data)
            return await anext(answers, None)
    except (OSError, Unusable):  # a time-out is an OSError
        return None


def _last_words(child: Child) -> str:
    return child.last_output().strip().rpartition("\n")[2][:300] or "without a word"
