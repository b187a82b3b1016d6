"""External commands end, and with them all they started; shown on real processes."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import secrets
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fermix.errors import Unusable
from fermix.native.child import LINE_BYTES, Child, Finished, Limits, child_environment, run_child
from fermix.native.group import Pipe
from fermix.native.sweep import become_subreaper, children
from tests.requirements import covers

ENV = {"PATH": os.defpath}
PATIENT = Limits(timeout_s=5.0)
SOON = Limits(timeout_s=0.5, grace_s=0.05)
SOON_BUT_GENTLE = Limits(timeout_s=0.5, grace_s=5.0)


@pytest.fixture
def mark() -> Iterator[str]:
    """An argument that only this test's processes have; none of them may outlive the test."""
    text = f"mark-{secrets.token_hex(8)}"
    yield text
    assert processes_with(text) == []


@pytest.fixture(autouse=True)
def nothing_leaks() -> Iterator[None]:
    """No descriptor and no ended child is left over."""
    become_subreaper()
    gc.collect()  # an event loop of an earlier test may hold descriptors until then
    before = open_descriptors(), children()
    yield
    assert (open_descriptors(), children()) == before


def open_descriptors() -> list[str]:
    """By what they are, not by number: the sweep gives up its reserve and takes it again."""
    found: list[str] = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # a thread may close its own meanwhile
            found.append(str(path.readlink()))
    return sorted(name for name in found if name != f"/proc/{os.getpid()}/fd")


def processes_with(mark: str) -> list[int]:
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if mark in read_or_empty(path)]


def read_or_empty(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


async def sh(script: str, *, limits: Limits = PATIENT, stdin: bytes = b"") -> Finished:
    async with asyncio.timeout(5):
        return await run_child(["sh", "-c", script], cwd=Path("/"), env=ENV, limits=limits, stdin=stdin)


async def until_running(mark: str, count: int = 1) -> None:
    async with asyncio.timeout(5):
        while len(processes_with(mark)) < count:
            await asyncio.sleep(0)


async def test_a_command_gives_its_output_and_exit_code() -> None:
    finished = await sh("echo out; echo err >&2; exit 3")

    assert Finished(3, b"out\nerr\n", "exited", 0) == finished


async def test_a_signal_is_a_negative_exit_code() -> None:
    finished = await sh("kill -SEGV $$")

    assert finished.exit_code == -signal.SIGSEGV


async def test_a_missing_program_is_an_os_error_and_leaves_nothing() -> None:
    with pytest.raises(FileNotFoundError):
        await run_child(["/no/such/program"], cwd=Path("/"), env=ENV)


async def test_a_helper_that_is_missing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with Child.open(["/no/such/program"], cwd=tmp_path, env=ENV, log=tmp_path / "helper.log"):
            pytest.fail("it cannot have been started")


async def test_without_a_free_descriptor_nothing_is_left_running(mark: str) -> None:
    """A command is started whole or not at all, wherever the descriptors end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    outcomes: set[str] = set()
    before = children()
    for limit in range(8, soft):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        try:
            await sh(f": {mark}")
        except OSError:
            outcomes.add("refused")
        else:
            outcomes.add("done")
            break
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert children() <= before

    assert outcomes == {"refused", "done"}


async def test_a_pipe_that_somebody_still_holds_is_left(tmp_path: Path) -> None:
    """What is there is taken; nobody waits for more."""
    reading, writing = os.pipe()
    taken: list[bytes] = []
    pipe = Pipe(os.fdopen(reading, "rb", buffering=0), taken.append)
    os.write(writing, b"text")

    pipe.close()

    assert taken == [b"text"]
    os.close(writing)


async def test_stdin_is_fed_whole_and_then_closed() -> None:
    text = b"x" * 300_000

    finished = await sh("cat", stdin=text)

    assert (0, text) == (finished.exit_code, finished.output)


async def test_a_program_that_does_not_read_its_stdin_is_no_error() -> None:
    finished = await sh("exit 0", stdin=b"x" * 300_000)

    assert Finished(0, b"", "exited", 0) == finished


@covers("child.exit.kills-group")
async def test_a_normal_exit_kills_what_is_left_of_the_group(mark: str) -> None:
    finished = await sh(f"sh -c 'sleep 600; : {mark}' & echo done")

    assert Finished(0, b"done\n", "exited", 0) == finished
    assert processes_with(mark) == []


@covers("child.no-orphans")
@pytest.mark.parametrize(
    "escape",
    [
        "setsid sh -c 'sleep 600; : MARK' &",
        "(setsid sh -c 'sleep 600; : MARK' &) &",
        "nohup sh -c 'sleep 600; : MARK' >/dev/null 2>&1 &",
        "setsid sh -c '(setsid sh -c \"sleep 600; : MARK\" &) & exit' &",
        "env -i PATH=$PATH setsid sh -c 'sleep 600; : MARK' &",
        "trap '' TERM HUP; setsid sh -c 'trap \"\" TERM HUP; sleep 600; : MARK' &",
    ],
)
async def test_what_left_its_group_is_gone_after_the_exit(escape: str, mark: str) -> None:
    """EXE-05: a new session, nohup, double fork, a wiped environment."""
    finished = await sh(escape.replace("MARK", mark) + " sleep 0.05; echo done")

    assert Finished(0, b"done\n", "exited", 0) == finished
    assert processes_with(mark) == []


@covers("child.timeout-or-cap.term-drain-kill", "child.no-orphans")
async def test_a_timeout_ends_the_command_and_its_children(mark: str) -> None:
    """EXE-01: a busy grandchild behind a shell that waits."""
    busy = f"{sys.executable} -c 'while True: pass' {mark}"

    finished = await sh(f"echo begun; {busy} & setsid {busy} & wait", limits=SOON)

    assert (finished.ending, finished.output) == ("timeout", b"begun\n")
    assert processes_with(mark) == []


async def test_a_timeout_asks_before_it_kills() -> None:
    finished = await sh("trap 'exit 7' TERM; echo begun; while :; do sleep 0.01; done", limits=SOON_BUT_GENTLE)

    assert (finished.exit_code, finished.ending) == (7, "timeout")


async def test_a_command_that_ignores_the_request_is_killed() -> None:
    finished = await sh("trap '' TERM; echo begun; while :; do sleep 0.01; done", limits=SOON)

    assert (finished.exit_code, finished.ending) == (-signal.SIGKILL, "timeout")


async def test_output_after_the_end_is_counted_and_thrown_away() -> None:
    """EXE-11: what a command writes while it is being ended may hold anything."""
    script = "trap 'echo secret; exit' TERM; echo begun; while :; do sleep 0.01; done"

    finished = await sh(script, limits=SOON_BUT_GENTLE)

    assert finished.output == b"begun\n"
    assert finished.cut_bytes >= len(b"secret\n")


@covers("child.timeout-or-cap.term-drain-kill")
async def test_endless_output_ends_at_the_cap() -> None:
    """EXE-09: `yes` for an hour."""
    finished = await sh("yes", limits=Limits(timeout_s=None, output_bytes=10_000))

    assert (finished.ending, len(finished.output)) == ("output_cap", 10_000)
    assert finished.cut_bytes > 0


@covers("child.owner-death.kills-group", "child.owned-from-start")
async def test_cancelling_kills_all_before_it_goes_on(mark: str) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(sh(f"setsid sh -c 'sleep 600; : {mark}' & sh -c 'sleep 600; : {mark}'"))
        await until_running(mark, 3)
        task.cancel()

    assert task.cancelled()
    assert processes_with(mark) == []


async def test_a_command_has_a_group_a_session_and_no_terminal() -> None:
    """EXE-03, EXE-07: killable apart from us; nothing to read, nobody to ask for a password."""
    finished = await sh(
        "ps -o pid=,pgid=,sid= -p $$; readlink /proc/self/fd/0; (: < /dev/tty) 2>&1 || echo no terminal"
    )

    numbers, stdin, *rest = finished.output.decode().splitlines()
    assert len(set(numbers.split())) == 1
    assert stdin == "/dev/null"
    assert rest[-1] == "no terminal"


async def test_a_command_that_reads_gets_the_end_of_file() -> None:
    """EXE-07: `cat`, `read x`."""
    finished = await sh("cat; read x || echo nothing")

    assert Finished(0, b"nothing\n", "exited", 0) == finished


async def test_exit_codes_are_right_beside_other_reapers() -> None:
    """EXE-06: many commands at once, and a child that is not ours to wait for."""
    rival = await asyncio.create_subprocess_exec(  # noqa: TID251 - a library's own way
        "sh", "-c", "exit 9", start_new_session=True
    )

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(sh(f"exit {code}")) for code in range(1, 21)]

    assert list(range(1, 21)) == [task.result().exit_code for task in tasks]
    assert await rival.wait() == 9


async def test_a_command_inherits_no_descriptor_of_ours() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        finished = await sh("ls /proc/self/fd")
    finally:
        os.close(reading)
        os.close(writing)

    assert str(writing) not in finished.output.decode().split()


async def test_a_helper_gives_lines_and_its_last_words(tmp_path: Path, mark: str) -> None:
    log = tmp_path / "helper.log"
    script = f"echo problem >&2; echo one; echo two; setsid sh -c 'sleep 600; : {mark}' & wait"
    async with asyncio.timeout(5), Child.open(["sh", "-c", script], cwd=tmp_path, env=ENV, log=log) as child:
        lines = child.lines()

        assert [await anext(lines), await anext(lines)] == ["one", "two"]
        assert mark in read_or_empty(Path(f"/proc/{child.pid}/cmdline"))

    assert child.last_output() == "problem\n"
    assert log.read_text(encoding="utf-8") == "problem\n"
    assert log.stat().st_mode & 0o777 == 0o600


@covers("helper.own-process", "helper.crash-isolated")
async def test_a_helper_that_dies_is_noticed_and_swept(tmp_path: Path, mark: str) -> None:
    script = f"setsid sh -c 'sleep 600; : {mark}' & echo up; kill -KILL $$"
    async with asyncio.timeout(5), Child.open(["sh", "-c", script], cwd=tmp_path, env=ENV) as child:
        assert await child.wait() == -signal.SIGKILL
        assert processes_with(mark) == []
        assert [line async for line in child.lines()] == ["up"]


async def test_a_line_without_end_is_an_error_not_a_full_memory(tmp_path: Path) -> None:
    async with asyncio.timeout(5), Child.open(["cat", "/dev/zero"], cwd=tmp_path, env=ENV) as child:
        with pytest.raises(Unusable, match="line of more than"):
            await anext(child.lines())


async def test_a_cancelled_owner_takes_its_helper_with_it(tmp_path: Path, mark: str) -> None:
    async def own() -> None:
        async with Child.open(["sh", "-c", f"sleep 600; : {mark}"], cwd=tmp_path, env=ENV) as child:
            await child.wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(own())
        await until_running(mark)
        task.cancel()

    assert task.cancelled()
    assert processes_with(mark) == []


def test_only_allowed_variables_reach_a_child() -> None:
    """R-40: an allow list, with a beginning for the locale."""
    environ = {"PATH": "/bin", "LC_ALL": "C", "LD_PRELOAD": "x.so", "OPENAI_API_KEY": "k", "FERMIX_HOME": "/h"}

    assert child_environment(environ, ["PATH", "HOME", "LC_*"]) == {"PATH": "/bin", "LC_ALL": "C"}


def test_the_users_own_library_path_and_certificates_are_not_taken_away() -> None:
    """PKG-01: what the frozen program's loader set is gone before our first line; what is here is the user's."""
    users = {"LD_LIBRARY_PATH": "/users/own", "SSL_CERT_FILE": "/users/own.pem"}

    assert users == child_environment({**users, "HOME": "/h"}, ["LD_LIBRARY_PATH", "SSL_CERT_*"])


async def test_helper_that_is_told_gets_more_than_a_pipe_holds(mark: str, tmp_path: Path) -> None:
    count = "import sys; print(len(sys.stdin.buffer.read(3_000_000)), flush=True); sys.stdin.buffer.read()"
    async with asyncio.timeout(10):
        async with Child.open([sys.executable, "-c", count, mark], cwd=tmp_path, env=ENV, told=True) as child:
            await child.write(b"x" * 3_000_000)
            assert await anext(child.lines()) == "3000000"


async def test_telling_one_that_has_ended_is_an_error_and_no_wait(mark: str, tmp_path: Path) -> None:
    async with asyncio.timeout(10):
        async with Child.open([sys.executable, "-c", "", mark], cwd=tmp_path, env=ENV, told=True) as child:
            await child.wait()
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                await _tell_for_ever(child)


async def test_one_that_never_reads_is_left_at_once(mark: str, tmp_path: Path) -> None:
    """What was not sent is dropped with the helper."""
    async with asyncio.timeout(10):
        async with Child.open(["sh", "-c", "sleep 60", mark], cwd=tmp_path, env=ENV, told=True) as child:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await child.write(b"x" * 1_000_000)


async def _tell_for_ever(child: Child) -> None:
    while True:
        await child.write(b"x" * 100_000)


async def test_what_a_helper_says_while_it_is_ended_is_thrown_away(tmp_path: Path) -> None:
    """EXE-11: it may hold anything, a secret included, and last words are shown."""
    log = tmp_path / "helper.log"
    script = "trap 'echo late; echo late >&2; exit 0' TERM; echo early >&2; echo early; while :; do sleep 0.01; done"
    async with asyncio.timeout(5):
        async with Child.open(["sh", "-c", script], cwd=tmp_path, env=ENV, log=log, grace_s=5.0) as child:
            lines = child.lines()
            assert await anext(lines) == "early"
        assert [line async for line in lines] == []

    assert (child.last_output(), log.read_text(encoding="utf-8")) == ("early\n", "early\n")
    assert await child.wait() == 0


async def test_a_reader_that_still_waits_when_its_helper_is_left_sees_the_end(tmp_path: Path) -> None:
    async def read() -> list[str]:
        return [line async for line in child.lines()]

    opening = Child.open(["sleep", "600"], cwd=tmp_path, env=ENV)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group, opening as child:
        reading = group.create_task(read())
        await asyncio.sleep(0)

    assert reading.result() == []


STREAM = """
import os, sys
line, total = b"x" * 65_535 + b"\\n", 0
with open(sys.argv[1], "wb", buffering=0) as told:
    for _ in range(16_384):
        os.write(1, line)
        total += len(line)
        told.seek(0)
        told.write(b"%d" % total)
"""
PENDING_BYTES = 2 * LINE_BYTES + 1_048_576  # and what the pipe and one read hold
MOST_GROWTH_KB = 64 * 1024


async def test_a_gibibyte_passes_through_a_few_mebibytes_of_memory(tmp_path: Path, mark: str) -> None:
    """Issue 4, child processes: a helper waits for a slow reader, and nothing is lost."""
    told = tmp_path / "told"
    argv = [sys.executable, "-c", STREAM, str(told), mark]
    async with asyncio.timeout(60), Child.open(argv, cwd=tmp_path, env=ENV) as child:
        await _until_it_waits(child.pid, told)
        pending = int(told.read_text(encoding="ascii"))
        before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count = 0
        async for line in child.lines():
            count += len(line) + 1
            await asyncio.sleep(0)
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb

    assert (pending <= PENDING_BYTES, count, grown_kb < MOST_GROWTH_KB) == (True, 1 << 30, True), (pending, grown_kb)


async def test_a_helper_that_nobody_reads_is_ended_while_it_waits(tmp_path: Path, mark: str) -> None:
    """Issue 4, child processes: a stalled reader holds nothing up, and an end may be asked for twice."""
    told = tmp_path / "told"
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:

        async def own() -> None:
            async with Child.open([sys.executable, "-c", STREAM, str(told), mark], cwd=tmp_path, env=ENV) as child:
                await _until_it_waits(child.pid, told)
                stalled.set()
                await child.wait()

        stalled = asyncio.Event()
        owner = group.create_task(own())
        await stalled.wait()
        owner.cancel()
        await asyncio.sleep(0)
        owner.cancel()

    assert processes_with(mark) == []


async def _until_it_waits(pid: int, told: Path) -> None:
    """It sleeps and its count stands, many times over."""
    seen, standing = "", 0
    while standing < 20:
        await asyncio.sleep(0.002)
        now = read_or_empty(told)
        waits = ") S " in read_or_empty(Path(f"/proc/{pid}/stat"))
        standing = standing + 1 if waits and now and now == seen else 0
        seen = now


async def test_the_end_of_a_job_ends_what_its_tools_started(mark: str) -> None:
    """EXE-02: nothing is left when the next run starts."""
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await sh(f"setsid sh -c 'sleep 600; : {mark}' & sleep 600", limits=Limits(timeout_s=None))
        assert processes_with(mark) == []


ENDINGS = {
    "exited": ("exit 0", PATIENT),
    "failed": ("exit 3", PATIENT),
    "killed": ("kill -9 $$", PATIENT),
    "orphan": ("setsid sleep 600 & (sleep 600 &) ; exit 0", PATIENT),
    "timeout": ("setsid sleep 600 & sleep 600", Limits(timeout_s=0.05, grace_s=0.01)),
    "output_cap": ("yes", Limits(timeout_s=5, output_bytes=1_000, grace_s=0.01)),
    "deaf": ("trap '' TERM HUP; setsid sleep 600 & while :; do sleep 0.01; done", Limits(timeout_s=0.05, grace_s=0.01)),
    "cancelled": ("sleep 600 & setsid sleep 600", Limits(timeout_s=None)),
}
RUNS = 512


@covers("child.no-orphans")
async def test_hundreds_of_commands_of_every_ending_leave_nothing(tmp_path: Path, mark: str) -> None:
    """Issue 4, child processes: fd leaks, zombies and orphans are zero; `nothing_leaks` counts them."""

    async def run(script: str, limits: Limits) -> None:
        arguments = ["sh", "-c", f"{script}; : {mark}"]
        running = run_child(arguments, cwd=tmp_path, env=ENV, limits=limits)
        if limits.timeout_s is not None:
            await running
            return
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(running, 0.05)

    kinds = list(ENDINGS.values())
    async with asyncio.timeout(60):
        for batch in range(0, RUNS, 64):
            async with asyncio.TaskGroup() as group:
                for number in range(batch, batch + 64):
                    group.create_task(run(*kinds[number % len(kinds)]))
            assert processes_with(mark) == []
