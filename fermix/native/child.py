"""Run external programs: one command to its end, or a helper for as long as it is needed.

The one boundary for child processes. Every program has a session of its own, no terminal and no open descriptors
of ours, and an owner at every moment: the coroutine that started it, until the event loop has seen the last of its
descendants end. On every way out nothing of it is left.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from fermix.errors import Unusable
from fermix.native.confine import Behind
from fermix.native.group import Pipe, ProcessGroup, Streams

Ending = Literal["exited", "timeout", "output_cap"]
Errors = Literal["merged", "dropped"]

TAIL_BYTES = 16_384  # enough for a traceback and the lines before it
LOG_BYTES = 1_048_576  # a chatty helper must not fill the disk; its start says most
LINE_BYTES = 4_194_304  # as on our own socket


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one command. `timeout_s` None: as long as its owner waits. `grace_s` lies between TERM and KILL."""

    timeout_s: float | None = 30.0
    output_bytes: int = 1_048_576
    grace_s: float = 0.2


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Finished:
    """How a command ended. `output` is stdout and stderr as they came; `cut_bytes` more were thrown away.

    `exit_code` is negative when a signal ended the program.
    """

    exit_code: int
    output: bytes
    ending: Ending
    cut_bytes: int


async def run_child(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes | int = b"",
    limits: Limits = DEFAULT_LIMITS,
    behind: Behind | None = None,
    errors: Errors = "merged",
) -> Finished:
    """Run one command to its end or to a limit; cancelling kills it and all it started. `stdin` is what it reads, or an
    open file of the caller. `errors` "dropped": the output is its stdout alone.

    Raises: OSError when the program or the folder is not there or may not be used; CannotConfine when a wall of
    `behind` cannot be built, and then nothing has run.
    """
    if behind is None:
        return await _run(argv, cwd=cwd, env=env, stdin=stdin, limits=limits, errors=errors)
    with behind.report() as report:
        launch = behind.command(argv, cwd, report)
        finished = await _run(
            launch.line, cwd=launch.cwd, env=env, stdin=stdin, limits=limits, errors=errors, passed=launch.passed
        )
        report.check()
    return finished


async def _run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: bytes | int,
    limits: Limits,
    errors: Errors,
    passed: Sequence[int] = (),
) -> Finished:
    if isinstance(stdin, int):
        source, text = stdin, b""
    else:
        source, text = (subprocess.PIPE if stdin else subprocess.DEVNULL), stdin
    stderr = subprocess.STDOUT if errors == "merged" else subprocess.DEVNULL
    streams = Streams(stdin=source, stdout=subprocess.PIPE, stderr=stderr, passed=passed)
    group = ProcessGroup(argv, cwd=cwd, env=env, streams=streams)
    output = _Output(limits.output_bytes)
    pipe = Pipe(_stream(group.stdout), output.take)
    try:
        if text:
            await _feed(_stream(group.stdin), text)
        ending = await _first_ending(group, output, limits.timeout_s)
        if ending != "exited":
            output.keep_no_more()
            await group.stop(limits.grace_s)
        await group.gone()
    finally:
        await group.kill()
        pipe.close()
    return Finished(group.exit_code, bytes(output.kept), ending, output.cut_bytes)


class Child:
    """A helper that lives longer than one call. Read its `lines`: it waits while eight mebibytes of them are unread.

    What it writes once it is asked to end may hold anything and is thrown away.
    """

    def __init__(
        self, group: ProcessGroup, stdout: asyncio.StreamReader, errors: _Errors, stdin: asyncio.StreamWriter | None
    ) -> None:
        self._group = group
        self._stdout = stdout
        self._errors = errors
        self._stdin = stdin
        self.pid = group.pid

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        log: Path | None = None,
        grace_s: float = DEFAULT_LIMITS.grace_s,
        told: bool = False,
    ) -> AsyncGenerator[Child]:
        """Start a helper; leaving asks it to end, waits `grace_s`, and kills it and all it started.

        Its stderr goes to `log`, up to a mebibyte of each run. `told`: it reads what `write` sends. Raises: OSError
        when it cannot be started.
        """
        errors = _Errors(log)
        source = subprocess.PIPE if told else subprocess.DEVNULL
        with ExitStack() as undo:
            undo.callback(errors.close)
            streams = Streams(stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            group = ProcessGroup(argv, cwd=cwd, env=env, streams=streams)
            undo.pop_all()
        ends = ExitStack()
        ends.callback(errors.close)
        stderr = Pipe(_stream(group.stderr), errors.take)
        ends.callback(stderr.close)
        try:
            stdout = asyncio.StreamReader(LINE_BYTES)
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(stdout), _stream(group.stdout)
            )
            ends.callback(transport.close)
            stdin = await _writer(_stream(group.stdin), ends) if told else None
            try:
                yield cls(group, stdout, errors, stdin)
            finally:
                stderr.drain()
                errors.keep_no_more()
                _discard_rest(stdout, transport)
        finally:
            try:
                await group.stop(grace_s)
            finally:
                ends.close()

    async def write(self, data: bytes) -> None:
        """Send bytes to its stdin; only for one that was opened to be told. Raises: OSError when it reads no more."""
        assert self._stdin is not None, "opened without `told`"
        self._stdin.write(data)
        await self._stdin.drain()

    async def wait(self) -> int:
        """Return its exit code once it and all it started have ended."""
        await asyncio.wait([self._group.ended])
        return self._group.exit_code

    async def lines(self) -> AsyncIterator[str]:
        """Give the lines of its stdout without their ends. Raises: Unusable for one over four mebibytes."""
        try:
            while line := await self._stdout.readline():
                yield line.decode("utf-8", "replace").rstrip("\r\n")
        except ValueError as error:
            raise Unusable(f"pid {self.pid} wrote a line of more than {LINE_BYTES} bytes") from error

    def last_output(self) -> str:
        """Return the end of what it wrote to stderr."""
        return self._errors.tail.decode("utf-8", "replace")


def child_environment(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Pick the allowed variables; "LC_*" allows all that begin so."""
    allowed = tuple(names)
    whole = {name for name in allowed if not name.endswith("*")}
    beginnings = tuple(name[:-1] for name in allowed if name.endswith("*"))
    return {name: value for name, value in environ.items() if name in whole or name.startswith(beginnings)}


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None, "asked for as a pipe"
    return stream


def _discard_rest(stdout: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
    """Read on, so that it can end in its own way, and keep nothing. A reader that still waits sees the end."""
    stdout.feed_eof()
    if not transport.is_closing():
        transport.set_protocol(asyncio.Protocol())
        transport.resume_reading()


async def _writer(stream: IO[bytes], ends: ExitStack) -> asyncio.StreamWriter:
    """Make a writer that waits while the pipe is full. What is not sent when it ends is lost on purpose."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), stream
    )
    ends.callback(_abort, transport)
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _abort(transport: asyncio.WriteTransport) -> None:
    if not transport.is_closing():  # its reader may be gone already, and a second end is an error
        transport.abort()


async def _feed(stream: IO[bytes], data: bytes) -> None:
    """Write in the background; a program that does not read is no error."""
    transport, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, stream)
    transport.write(data)
    transport.close()


async def _first_ending(group: ProcessGroup, output: _Output, timeout_s: float | None) -> Ending:
    await asyncio.wait([group.exited, output.full], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    if output.full.done():
        return "output_cap"
    return "exited" if group.exited.done() else "timeout"


class _Output:
    """The first bytes of an output, and how many came after them."""

    def __init__(self, most_bytes: int) -> None:
        self.kept = bytearray()
        self.cut_bytes = 0
        self.full: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._most_bytes = most_bytes

    def take(self, chunk: bytes) -> None:
        room = self._most_bytes - len(self.kept)
        self.kept += chunk[:room]
        self.cut_bytes += max(0, len(chunk) - room)
        if self.cut_bytes and not self.full.done():
            self.full.set_result(None)

    def keep_no_more(self) -> None:
        """What is written after the end may hold anything, so it is only counted."""
        self._most_bytes = len(self.kept)


class _Errors:
    """The stderr of a helper: its end in memory, its start in a file when one is wanted."""

    def __init__(self, log: Path | None) -> None:
        self.tail = b""
        self._kept = True
        self._room = LOG_BYTES
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600) if log else None

    def keep_no_more(self) -> None:
        self._kept = False

    def take(self, chunk: bytes) -> None:
        if not self._kept:
            return
        self.tail = (self.tail + chunk)[-TAIL_BYTES:]
        if self._log is not None and self._room > 0:
            self._room -= os.write(self._log, chunk[: self._room])

    def close(self) -> None:
        if self._log is not None:
            os.close(self._log)
            self._log = None
