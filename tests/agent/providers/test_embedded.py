"""The embedded model's engine as a child of the daemon: started late, ended when idle, back after a crash."""

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

from fermix.agent.providers import embedded
from fermix.agent.providers.embedded import EmbeddedModel
from fermix.agent.providers.local_files import LocalFiles
from fermix.clock import Clock
from fermix.config.model import LocalModelSettings
from fermix.errors import NeedsOperator, Unavailable
from fermix.events import DownloadProgress, EventQueue, Events, ServiceState
from fermix.fetch import Artifact
from fermix.supervisor import OUTSIDE, Supervisor
from tests.fakes.clock import ManualClock
from tests.requirements import covers

PROGRAM = (sys.executable, str(Path(__file__).parents[2] / "fakes" / "engine.py"))


def _model(folder: Path, clock: Clock, *, here: bool = True, manner: str = "") -> tuple[EmbeddedModel, Events]:
    events = Events(clock)
    files = LocalFiles(folder, Artifact("m.gguf", 4, "", "http://127.0.0.1:1/m.gguf"), None, ())
    if here:
        files.model_path.write_bytes(b"gguf")
    environ = {**os.environ, "FERMIX_FAKE_ENGINE": manner}
    return EmbeddedModel(LocalModelSettings(idle_s=600), files, PROGRAM, environ, events, clock), events


@asynccontextmanager
async def _supervised(model: EmbeddedModel, events: Events, clock: Clock) -> AsyncGenerator[None]:
    async with asyncio.timeout(5), Supervisor([model], OUTSIDE, events, clock):
        yield


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _engine_pids(folder: Path) -> set[int]:
    """Every process that was started for this test's model file."""
    wanted = str(folder / "m.gguf").encode()
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in _command_line(int(entry.name)):
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def _wait_gone(pid: int) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 5)[0])
    finally:
        os.close(descriptor)


@covers("helper.own-process")
async def test_engine_starts_with_the_first_call_and_is_shared(tmp_path: Path) -> None:
    """Nothing runs before; two callers at once get one engine, one address and one key."""
    model, events = _model(tmp_path, ManualClock())
    async with _supervised(model, events, ManualClock()):
        assert model.status["state"] == "ready"
        assert _engine_pids(tmp_path) == set()

        async with asyncio.TaskGroup() as group:
            both = [group.create_task(model.endpoint()) for _ in range(2)]

        first, second = (task.result() for task in both)
        assert first == second
        assert first.base_url == "http://127.0.0.1:4711/v1"
        assert model.status["state"] == "loaded"
        assert len(_engine_pids(tmp_path)) == 1
    assert _engine_pids(tmp_path) == set()


async def test_key_is_new_for_each_start_and_in_no_command_line(tmp_path: Path) -> None:
    """Other users of the machine can read command lines."""
    keys: set[str] = set()
    for _ in range(2):
        model, events = _model(tmp_path, ManualClock())
        async with _supervised(model, events, ManualClock()):
            endpoint = await model.endpoint()
            assert endpoint.key is not None
            (pid,) = _engine_pids(tmp_path)
            assert endpoint.key.reveal().encode() not in _command_line(pid)
            keys.add(endpoint.key.reveal())

    assert len(keys) == 2


async def test_idle_engine_is_unloaded_and_a_call_in_between_keeps_it(tmp_path: Path) -> None:
    """Ten minutes after the last call it is gone, its memory with it; the next call starts another."""
    clock = ManualClock()
    model, events = _model(tmp_path, clock)
    async with _supervised(model, events, clock):
        await model.endpoint()
        (first,) = _engine_pids(tmp_path)
        await clock.until_asleep()
        clock.advance(599)
        await model.endpoint()
        clock.advance(599)
        await clock.until_asleep()
        assert model.status["state"] == "loaded"

        clock.advance(600)
        assert await asyncio.get_running_loop().run_in_executor(None, _wait_gone, first)
        assert model.status["state"] == "ready"
        await model.endpoint()
        assert _engine_pids(tmp_path) != {first}


async def test_running_call_is_never_cut_by_the_idle_timer(tmp_path: Path) -> None:
    """However long an answer takes, the engine stays."""
    clock = ManualClock()
    model, events = _model(tmp_path, clock)
    async with _supervised(model, events, clock):
        with model.in_use():
            await model.endpoint()
            await clock.until_asleep()
            clock.advance(3_600)
            await clock.until_asleep()
            assert model.status["state"] == "loaded"


@covers("helper.crash-isolated")
async def test_killed_engine_comes_back_with_the_next_call(tmp_path: Path) -> None:
    """A crash is the service's failure, seen by the supervisor, and nothing else's."""
    clock = ManualClock()
    model, events = _model(tmp_path, clock)
    with events.subscribe(10) as news:
        async with _supervised(model, events, clock):
            await model.endpoint()
            (pid,) = _engine_pids(tmp_path)
            os.kill(pid, signal.SIGKILL)
            while not (isinstance(event := (await news.get()).event, ServiceState) and event.state == "down"):
                pass
            assert model.status["state"] == "failed"

            await clock.until_asleep()
            clock.advance(60)
            await model.endpoint()
            assert model.status["state"] == "loaded"
            assert _engine_pids(tmp_path) - {pid}


async def test_engine_that_does_not_start_is_told_to_the_caller(tmp_path: Path) -> None:
    """The sender reads a sentence, the trace has the engine's last words."""
    model, events = _model(tmp_path, ManualClock(), manner="dies")
    async with _supervised(model, events, ManualClock()):
        with pytest.raises(Unavailable, match="error: the model is broken") as caught:
            await model.endpoint()

    assert "fermix logs" in (caught.value.user_text or "")
    assert model.status["detail"] == "the engine ended: error: the model is broken"


async def test_first_use_fetches_the_model_and_then_answers(tmp_path: Path) -> None:
    """A newcomer's first message needs no command before it."""
    model, events = _model(tmp_path, ManualClock(), here=False)
    async with _supervised(model, events, ManualClock()):
        assert model.status["state"] == "absent"
        await model.endpoint()
        assert model.status["state"] == "loaded"


async def test_first_use_without_a_network_says_what_to_do_instead(tmp_path: Path) -> None:
    """What the fetch says is a whole sentence with what to do; it is told once."""
    model, events = _model(tmp_path, ManualClock(), here=False, manner="offline")
    async with _supervised(model, events, ManualClock()):
        with pytest.raises(NeedsOperator) as caught:
            await model.endpoint()

    assert str(caught.value) == "the local model is missing: no network: bring the file"


async def test_machine_without_memory_is_told_so_and_asked_again_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service stays up: memory comes and goes."""
    model, events = _model(tmp_path, ManualClock())
    async with _supervised(model, events, ManualClock()):
        with monkeypatch.context() as patch:
            patch.setattr(embedded, "NEEDED_BYTES", 1 << 60)
            with pytest.raises(NeedsOperator, match="MiB of memory"):
                await model.endpoint()
        assert model.status["state"] == "failed"

        await model.endpoint()
        assert model.status["state"] == "loaded"


async def test_fetch_tells_how_it_goes_and_ends_ready(tmp_path: Path) -> None:
    """Every step is an event; afterwards the model can be used."""
    model, events = _model(tmp_path, ManualClock(), here=False)
    with events.subscribe(10) as news:
        async with _supervised(model, events, ManualClock()):
            model.fetch()
            assert model.status["state"] == "fetching"
            seen = [await _next_step(news)]
            while seen[-1].state != "done":
                seen.append(await _next_step(news))
            await model.endpoint()

    assert [(step.done_bytes, step.total_bytes, step.state) for step in seen] == [
        (1, 4, "running"),
        (4, 4, "running"),
        (4, 4, "done"),
    ]


async def test_model_and_engine_are_one_download_that_ends_once(tmp_path: Path) -> None:
    """The bar shows both files, and that the first is here is not told as the end."""
    clock = ManualClock()
    events = Events(clock)
    engine = Artifact("engine-1-any.whl", 6, "", "http://127.0.0.1:1/engine-1-any.whl")
    files = LocalFiles(tmp_path, Artifact("m.gguf", 4, "", "http://127.0.0.1:1/m.gguf"), engine, ())
    environ = {**os.environ, "FERMIX_FAKE_ENGINE": "both"}
    model = EmbeddedModel(LocalModelSettings(idle_s=600), files, PROGRAM, environ, events, clock)
    with events.subscribe(10) as news:
        async with _supervised(model, events, clock):
            model.fetch()
            seen = [await _next_step(news)]
            while seen[-1].state != "done":
                seen.append(await _next_step(news))
            assert model.status["state"] == "ready"

    assert [(step.done_bytes, step.total_bytes, step.state) for step in seen] == [
        (1, 10, "running"),
        (4, 10, "running"),
        (4, 10, "verifying"),
        (10, 10, "running"),
        (10, 10, "done"),
    ]


async def test_end_of_a_fetch_is_told_when_the_status_knows_it(tmp_path: Path) -> None:
    """A client asks for the status as soon as it hears of the end, and hears nothing after it."""
    model, events = _model(tmp_path, ManualClock(), here=False)
    with events.subscribe(10) as news:
        async with _supervised(model, events, ManualClock()):
            model.fetch()
            while (await _next_step(news)).state != "done":
                pass
            assert model.status["state"] == "ready"


async def _next_step(news: EventQueue) -> DownloadProgress:
    while not isinstance(event := (await news.get()).event, DownloadProgress):
        pass
    return event


async def test_failed_fetch_is_kept_as_the_reason(tmp_path: Path) -> None:
    """Status and the next sender both learn why."""
    model, events = _model(tmp_path, ManualClock(), here=False, manner="offline")
    with events.subscribe(10) as news:
        async with _supervised(model, events, ManualClock()):
            model.fetch()
            while (await _next_step(news)).state != "failed":
                pass
            assert model.status["state"] == "failed"
            with pytest.raises(NeedsOperator, match="no network: bring the file"):
                await model.endpoint()
