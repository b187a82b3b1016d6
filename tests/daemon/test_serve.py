"""The whole daemon in process, its services killed one by one."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from fermix.agent.memory import conversations
from fermix.channels.local import LocalChannel
from fermix.cli.verbs import run
from fermix.clock import Clock, SystemClock
from fermix.daemon import serve as serving
from fermix.daemon.control import read_candidates
from fermix.daemon.liveness import NO_SIGN
from fermix.daemon.serve import Start, serve
from fermix.events import Events
from fermix.home import Home
from fermix.protocol.client import DaemonClient
from fermix.setup.sections import load_config
from fermix.supervisor import Restart, Service, Supervisor
from tests.fakes.provider import Answer, ScriptedProvider
from tests.flows.product import compatible
from tests.requirements import covers
from tests.waiting import until

SERVICES = (
    *(
        "channels",
        "clients",
        "database",
        "health",
        "history",
        "http",
        "local listening",
        "local model",
        "search index",
        "socket",
    ),
    "traces",
)


class HastyClock(SystemClock):
    """No delay before a restart."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


class Mortal:
    """A real service that can be killed: an error is raised in the middle of its run."""

    def __init__(self, service: Service) -> None:
        self.name = service.name
        self.starts = 0
        self._service = service
        self._doom = asyncio.Event()

    async def run(self, started: Callable[[], None]) -> None:
        def count() -> None:
            self.starts += 1
            started()

        self._doom.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._die())
            await self._service.run(count)

    def kill(self) -> None:
        self._doom.set()

    async def _die(self) -> None:
        await self._doom.wait()
        raise RuntimeError("killed by the test")


@pytest.fixture
def mortals(monkeypatch: pytest.MonkeyPatch) -> dict[str, Mortal]:
    """Every supervised service of the daemon by its name, once it runs."""
    found: dict[str, Mortal] = {}

    class Registrar(Supervisor):
        def __init__(self, services: Sequence[Service], restart: Restart, events: Events, clock: Clock) -> None:
            wrapped = [found.setdefault(service.name, Mortal(service)) for service in services]
            super().__init__(wrapped, restart, events, clock)

    for module in (serving, conversations):
        monkeypatch.setattr(module, "Supervisor", Registrar)
    monkeypatch.setattr(serving, "SystemClock", HastyClock)
    return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "fermix")
    home.prepare()
    return home


@asynccontextmanager
async def daemon(home: Home, base_url: str) -> AsyncGenerator[None]:
    home.config.write_text(compatible(base_url), encoding="utf-8")
    config = load_config(home, {})
    start = Start(home, {}, config, read_candidates(home, config), (sys.executable, "-m", "fermix"), home.workspace)
    async with asyncio.TaskGroup() as group:
        serve_task = group.create_task(serve(start))
        await until(home.daemon_socket.exists)
        try:
            yield
        finally:
            async with DaemonClient.connect(home.daemon_socket, client="test") as client:
                await client.request("daemon.stop", {})
    assert serve_task.done()


async def ask(home: Home, message_id: str) -> str:
    """One question over the real socket; the reply."""
    async with asyncio.timeout(5), DaemonClient.connect(home.daemon_socket, client="test") as client:
        await client.request("events.subscribe", {"sessions": ["cli"], "services": False})
        await client.request("message.send", {"id": message_id, "session": "cli", "text": "hi"})
        reply = ""
        async for name, params in client.events():
            if name == "reply":
                reply = str(params["text"])
            if name == "turn.ended":
                break
        return reply


@pytest.mark.parametrize(("alive_at", "overall"), [(0.0, "ready"), (None, "degraded")])
async def test_the_status_tells_of_each_channel_whether_it_reads(
    home: Home, monkeypatch: pytest.MonkeyPatch, alive_at: float | None, overall: str
) -> None:
    """Issue 3, health of a channel: wired into the daemon, with a channel that has lost its proof of life."""
    monkeypatch.setattr(LocalChannel, "alive_at", None if alive_at is None else property(lambda _: time.monotonic()))
    async with (
        ScriptedProvider([], repeat=True) as fake,
        daemon(home, fake.base_url),
        asyncio.timeout(5),
        DaemonClient.connect(home.daemon_socket, client="test") as client,
    ):
        status = await client.request("status", {})

    reason = "" if overall == "ready" else NO_SIGN
    assert status["channels"] == [{"channel": "cli", "state": overall, "reason": reason}]
    assert status["failures"] == ([] if overall == "ready" else [f"channel cli: {reason}"])
    assert status["overall"] == overall


@covers("proc.supervised.restart")
async def test_each_service_killed_in_turn_comes_back_and_disturbs_no_other(
    home: Home, mortals: dict[str, Mortal]
) -> None:
    """A head 3. After each death a question is answered, and nobody but the dead one was started again."""
    async with ScriptedProvider([Answer(text="still here")], repeat=True) as fake, daemon(home, fake.base_url):
        await until(lambda: all(service.starts == 1 for service in mortals.values()))
        assert tuple(sorted(mortals)) == SERVICES
        for number, victim in enumerate(SERVICES):
            before = {name: service.starts for name, service in mortals.items()}
            mortals[victim].kill()
            await until(lambda name=victim, starts=before[victim]: mortals[name].starts == starts + 1)

            assert await ask(home, f"after-{number}") == "still here"
            assert {name: service.starts for name, service in mortals.items()} == before | {victim: 2}
        async with DaemonClient.connect(home.daemon_socket, client="test") as client:
            status = await client.request("status", {})
            history = await client.request("conversation.history", {"session": "cli", "limit": 100})

    assert status["overall"] == "ready"
    assert status["failures"] == []
    assert len(_list(history["entries"])) == 2 * len(SERVICES)
    assert not home.daemon_socket.exists()


def _list(value: object) -> list[object]:
    assert isinstance(value, list)
    return value


@covers("proc.supervised.gives-up")
def test_a_part_that_cannot_be_kept_up_ends_the_program_with_one_sentence(
    home: Home, mortals: dict[str, Mortal], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A topology 29: the service manager starts the whole program again; the lock and the socket are gone by then."""

    class Hopeless(serving.HttpServer):
        async def run(self, started: Callable[[], None]) -> None:
            raise RuntimeError("cannot go on")

    monkeypatch.setattr(serving, "HttpServer", Hopeless)
    monkeypatch.setattr(run, "configure_logging", lambda *_, **__: None)
    monkeypatch.setenv("FERMIX_HOME", str(home.root))
    home.config.write_text("[fermix_web]\nport = 0\n", encoding="utf-8")

    assert run.main([]) == 1
    assert capsys.readouterr().err == "fermix: http failed 5 times in a row; `fermix logs` says why\n"
    assert not home.daemon_socket.exists()


@covers("ship.native.bundled-verified")
def test_a_changed_native_file_stops_the_start(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 2, first tools: native files are hash-checked at daemon start."""
    (tmp_path / "_native.abi3.so").write_bytes(b"somebody else's")
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  _native.abi3.so\n", encoding="ascii")
    monkeypatch.setattr(run, "verify_native_files", partial(run.verify_native_files, tmp_path))
    monkeypatch.setenv("FERMIX_HOME", str(home.root))

    assert run.main([]) == 1
    assert "_native.abi3.so is not the one that was built" in capsys.readouterr().err
    assert not home.database.exists()


def test_a_home_whose_path_is_too_long_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / ("long" * 30)
    monkeypatch.setenv("FERMIX_HOME", str(home))

    assert run.main([]) == 1
    assert f"has {len(os.fsencode(home)) + len('/daemon.sock')} bytes, at most 107" in capsys.readouterr().err
    assert not home.exists()
