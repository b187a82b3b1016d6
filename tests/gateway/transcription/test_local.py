"""The child that listens: when it runs, what ends it, and that one bad recording harms no other."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fermix.clock import Clock
from fermix.errors import Unavailable, Unusable
from fermix.events import Events
from fermix.gateway.transcription import ChosenTranscriber, LocalListener, VoiceFiles
from fermix.gateway.transcription import local as local_module
from fermix.gateway.transcription.choice import LISTENS_ITSELF
from fermix.gateway.transcription.transcriber import Audio, NoBackend
from fermix.net import Net
from fermix.supervisor import OUTSIDE, Supervisor
from fermix.workers import Workers
from tests.fakes.books import FakeBooks
from tests.fakes.clock import ManualClock
from tests.waiting import until

PROGRAM = (sys.executable, str(Path(__file__).parents[2] / "fakes" / "ears.py"))


def note(text: bytes) -> Audio:
    return Audio(text, "audio/ogg")


@asynccontextmanager
async def listening(
    folder: Path, clock: Clock | None = None, files: VoiceFiles | None = None
) -> AsyncGenerator[LocalListener]:
    """A listener whose child is the fake of `tests/fakes/ears.py`; `folder` is its home and has the model's folder."""
    (folder / "whisper-tiny.en").mkdir(exist_ok=True)
    clock, workers = clock or ManualClock(), Workers()
    environ = {**os.environ, "FERMIX_HOME": str(folder), "OPENAI_API_KEY": "sk-not-for-children-1"}
    look = files or VoiceFiles(folder, (), ())
    listener = LocalListener(lambda: look, PROGRAM, environ, workers, clock)
    try:
        async with asyncio.timeout(10), Supervisor([listener], OUTSIDE, Events(clock), clock):
            yield listener
    finally:
        workers.close()


def children_of(folder: Path) -> set[int]:
    """Every process that was started for this test's model."""
    wanted = str(folder / "whisper-tiny.en").encode()
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


async def gone(pid: int) -> bool:
    def wait() -> bool:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([descriptor], [], [], 5)[0])
        finally:
            os.close(descriptor)

    return await asyncio.get_running_loop().run_in_executor(None, wait)


async def one_child(folder: Path) -> int:
    """Wait until the child is there and return its number."""
    await until(lambda: children_of(folder))
    (pid,) = children_of(folder)
    return pid


async def test_nothing_runs_before_the_first_recording_and_one_child_hears_them_in_order(tmp_path: Path) -> None:
    async with listening(tmp_path) as listener:
        assert children_of(tmp_path) == set()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(listener.transcribe(note(b"%d" % number))) for number in range(5)]
        assert [task.result() for task in tasks] == [f"heard {number + 1}: {number}" for number in range(5)]
        assert len(children_of(tmp_path)) == 1
    assert children_of(tmp_path) == set()


async def test_large_recording_arrives_whole(tmp_path: Path) -> None:
    """Far more than a pipe holds."""
    async with listening(tmp_path) as listener:
        assert await listener.transcribe(note(b"x" * 20_000_000)) == f"heard 1: {'x' * 20}"


async def test_idle_child_ends_and_the_next_recording_starts_another(tmp_path: Path) -> None:
    clock = ManualClock()
    async with listening(tmp_path, clock) as listener:
        await listener.transcribe(note(b"one"))
        pid = await one_child(tmp_path)
        await clock.until_asleep()
        clock.advance(119)
        assert children_of(tmp_path) == {pid}
        clock.advance(1)
        assert await gone(pid)
        assert await listener.transcribe(note(b"two")) == "heard 1: two"


async def test_child_killed_in_the_middle_fails_its_recording_and_the_next_works(tmp_path: Path) -> None:
    """kill -9; the recording is not tried again, since it may be what killed the child."""
    async with listening(tmp_path) as listener, asyncio.TaskGroup() as group:
        failing = group.create_task(_failure(listener, b"hangs"))
        waiting = group.create_task(listener.transcribe(note(b"behind")))
        await until((tmp_path / "hanging").exists)
        pid = await one_child(tmp_path)
        os.kill(pid, signal.SIGKILL)
        assert isinstance(await failing, Unavailable)
        assert await waiting == "heard 1: behind"


async def test_recording_that_crashes_the_decoder_fails_alone(tmp_path: Path) -> None:
    async with listening(tmp_path) as listener:
        error = await _failure(listener, b"dies")
        assert isinstance(error, Unavailable)
        assert error.user_text is None
        assert await listener.transcribe(note(b"fine")) == "heard 1: fine"


async def test_recording_that_hangs_the_decoder_is_given_up_with_its_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_module, "LISTEN_S", 0.5)
    async with listening(tmp_path) as listener:
        assert isinstance(await _failure(listener, b"hangs"), Unavailable)
        assert await listener.transcribe(note(b"fine")) == "heard 1: fine"


async def test_unreadable_recording_costs_no_child(tmp_path: Path) -> None:
    async with listening(tmp_path) as listener:
        assert isinstance(await _failure(listener, b"refuse"), Unusable)
        assert await listener.transcribe(note(b"fine")) == "heard 2: fine"


async def test_child_killed_while_idle_is_replaced(tmp_path: Path) -> None:
    async with listening(tmp_path) as listener:
        await listener.transcribe(note(b"one"))
        pid = await one_child(tmp_path)
        os.kill(pid, signal.SIGKILL)
        assert await gone(pid)
        await until(lambda: not children_of(tmp_path))
        assert await listener.transcribe(note(b"two")) == "heard 1: two"


async def test_child_that_does_not_start_gets_one_successor(tmp_path: Path) -> None:
    (tmp_path / "manner").write_text("once", encoding="utf-8")
    async with listening(tmp_path) as listener:
        assert await listener.transcribe(note(b"one")) == "heard 1: one"


async def test_child_that_never_starts_fails_the_recording_and_the_service_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "manner").write_text("dies", encoding="utf-8")
    async with listening(tmp_path) as listener:
        assert isinstance(await _failure(listener, b"one"), Unavailable)
        assert "error: no ears" in caplog.text
        (tmp_path / "manner").unlink()
        assert await listener.transcribe(note(b"two")) == "heard 1: two"


async def test_who_no_longer_waits_is_not_listened_to(tmp_path: Path) -> None:
    """A /stop frees the child for the next at once, and takes one that still waits out of the line."""
    async with listening(tmp_path) as listener, asyncio.TaskGroup() as group:
        stopped = [group.create_task(listener.transcribe(note(b"hangs"))) for _ in range(2)]
        await until((tmp_path / "hanging").exists)
        for task in stopped:
            task.cancel()
        assert await listener.transcribe(note(b"third")) == "heard 1: third"


async def test_line_is_bounded(tmp_path: Path) -> None:
    """Sixteen wait behind the one that is heard, so that what strangers send cannot fill the memory."""
    async with listening(tmp_path) as listener, asyncio.TaskGroup() as group:
        first = group.create_task(listener.transcribe(note(b"hangs")))
        await until((tmp_path / "hanging").exists)
        waiting = [group.create_task(listener.transcribe(note(b"wait"))) for _ in range(16)]
        await until(listener._line.full)
        assert "wait already" in str(await _failure(listener, b"one more"))
        for task in (first, *waiting):
            task.cancel()


async def test_child_knows_no_key_and_nothing_is_written(tmp_path: Path) -> None:
    async with listening(tmp_path) as listener:
        await listener.transcribe(note(b"what was said"))
        pid = await one_child(tmp_path)
        environment, command = _known_of(pid)
        assert b"not-for-children" not in environment
        assert b"HF_HUB_OFFLINE=1" in environment
        assert b"what was said" not in command
    assert _files_below(tmp_path) == []


async def test_without_model_or_engine_the_sender_is_told_to_set_up(tmp_path: Path) -> None:
    """Issue 3, item 4: nothing is downloaded unasked, and nothing starts."""
    absent = VoiceFiles.of(tmp_path / "models")
    async with listening(tmp_path, files=absent) as listener:
        with pytest.raises(NoBackend, match="run `fermix setup`"):
            await listener.transcribe(note(b"one"))
        assert children_of(tmp_path) == set()


async def test_empty_recording_is_refused_before_any_backend(tmp_path: Path) -> None:
    async with listening(tmp_path) as listener, Net.open(loopback_only=True) as net:
        with pytest.raises(Unusable, match="empty"):
            await ChosenTranscriber(net, listener, LISTENS_ITSELF, FakeBooks()).transcribe(note(b""))
        assert children_of(tmp_path) == set()


async def _failure(listener: LocalListener, data: bytes) -> Exception:
    with pytest.raises((Unavailable, Unusable)) as caught:
        await listener.transcribe(note(data))
    return caught.value


def _known_of(pid: int) -> tuple[bytes, bytes]:
    process = Path(f"/proc/{pid}")
    return (process / "environ").read_bytes(), (process / "cmdline").read_bytes()


def _files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
