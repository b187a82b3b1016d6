from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from textual.pilot import Pilot

from fermix.clock import SystemClock
from fermix.home import Home
from fermix.tui.app import FermixApp
from fermix.tui.desk import ProviderChoice
from tests.fakes.daemon import FakeDaemon

OpenApp = Callable[..., AbstractAsyncContextManager["Stage"]]


class FakeSetup:
    """The wizard's functions; refuses when told to."""

    def __init__(self) -> None:
        self.saved: list[tuple[str, str, str]] = []
        self.refusal: Exception | None = None
        self.refused_choices: Exception | None = None

    async def choices(self) -> Sequence[ProviderChoice]:
        if self.refused_choices is not None:
            raise self.refused_choices
        return (
            ProviderChoice("openai", "OpenAI", "required", "https://api.openai.com/v1"),
            ProviderChoice("anthropic", "Anthropic", "required", "https://api.anthropic.com"),
            ProviderChoice("ollama", "Ollama", "none", "http://127.0.0.1:11434"),
        )

    async def save(self, provider: str, *, key: str, base_url: str) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.saved.append((provider, key, base_url))
        return f"{provider} is set up."


class Stage:
    """An app under real keys against the fake daemon."""

    def __init__(self, app: FermixApp, pilot: Pilot[int], daemon: FakeDaemon, setup: FakeSetup) -> None:
        self.app = app
        self.pilot = pilot
        self.daemon = daemon
        self.setup = setup

    async def until(self, reached: Callable[[], bool]) -> None:
        """Let the app work until `reached`; at most 5 s."""
        try:
            async with asyncio.timeout(5):
                while not reached():
                    await self.pilot.pause()
        except TimeoutError:
            raise AssertionError(f"the screen never got there:\n{self.seen}") from None

    async def send(self, text: str) -> str:
        """Type and send; returns the message's id once the daemon has it."""
        count = len(self.daemon.sent("message.send")) + 1
        self.app.screen.query_one("#prompt").text = text  # type: ignore[attr-defined]
        await self.pilot.press("enter")
        return str((await self.daemon.wait_for("message.send", count))["id"])

    def begin(self, message_id: str, text: str = "") -> None:
        self.daemon.emit("message.accepted", session="cli", id=message_id, text=text, at="")
        self.daemon.emit("queue.changed", session="cli", running=message_id, waiting=[])
        self.daemon.emit("turn.started", session="cli", turn_id="t1", message_id=message_id)

    def say(self, message_id: str, text: str, kind: str = "text") -> None:
        self.daemon.emit("turn.delta", session="cli", message_id=message_id, kind=kind, text=text)

    def finish(self, message_id: str, text: str, outcome: str = "completed") -> None:
        fields = {"session": "cli", "message_id": message_id}
        if text:
            self.daemon.emit("reply", **fields, text=text, model="openai/gpt-5.5")
        self.daemon.emit(
            "turn.ended", **fields, outcome=outcome, error="", duration_s=1.0, input_tokens=1200, output_tokens=340
        )

    @property
    def seen(self) -> str:
        """Every character on the screen, line by line."""
        return "\n".join(
            "".join(segment.text for segment in strip) for strip in self.app.screen._compositor.render_strips()
        )

    async def until_seen(self, text: str) -> None:
        await self.until(lambda: text in self.seen)


@pytest.fixture
def stage(tmp_path: Path) -> OpenApp:
    @asynccontextmanager
    async def open_app(
        daemon: FakeDaemon | None = None,
        *,
        size: tuple[int, int] = (100, 30),
        start_daemon: Callable[[], Awaitable[str]] | None = None,
        connected: bool = True,
    ) -> AsyncGenerator[Stage]:
        daemon, setup = daemon or FakeDaemon(), FakeSetup()
        app = FermixApp(
            Home(tmp_path),
            connect=daemon.connect,
            start_daemon=start_daemon,
            setup=setup,
            clock=SystemClock(),
            cwd=tmp_path,
            home_label="~/.fermix",
        )
        async with app.run_test(size=size, notifications=True) as pilot:
            stage = Stage(app, pilot, daemon, setup)
            if connected:
                await daemon.wait_for("status")
                await stage.until(lambda: app.desk.link.connected)
            yield stage

    return open_app
