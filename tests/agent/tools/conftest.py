"""A workspace, and a way to call the built-in tools as the loop does: through the dispatcher."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fermix.agent.approvals import Approvals
from fermix.agent.capability import Capability
from fermix.agent.dispatch import Dispatcher
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.sandbox import Policy, Sandbox, SandboxSettings
from fermix.agent.tools.catalog import ToolDeps, build_tools
from fermix.agent.turn import Turn
from fermix.clock import SystemClock
from fermix.events import Events
from fermix.home import Home
from fermix.native.sweep import become_subreaper, children
from fermix.workers import Workers
from tests.fakes.clock import ManualClock
from tests.fakes.tools import tool_deps
from tests.fakes.turns import RecordingPort, make_call, make_scope, make_turn


@dataclass(frozen=True)
class Toolbox:
    """The tools of one daemon, on a home in a temporary folder."""

    home: Home
    deps: ToolDeps

    @property
    def tools(self) -> tuple[Capability, ...]:
        return build_tools(self.deps)

    @property
    def approvals(self) -> Approvals:
        return self.deps.approvals

    @property
    def workspace(self) -> Path:
        return self.home.workspace

    def with_program(self, program: str) -> Toolbox:
        """The same tools, where another file stands for Fermix itself."""
        return replace(self, deps=replace(self.deps, program=(program,)))

    def write(self, name: str, data: bytes | str) -> None:
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)

    async def call(
        self, name: str, /, turn: Turn | None = None, port: RecordingPort | None = None, **arguments: JsonValue
    ) -> ToolResult:
        dispatcher = Dispatcher(Events(SystemClock()), SystemClock())
        async with asyncio.timeout(5):
            return await dispatcher.dispatch(
                make_call(name, **arguments), make_scope(*self.tools, turn=turn or make_turn(), port=port)
            )


@pytest.fixture
def toolbox(tmp_path: Path) -> Iterator[Toolbox]:
    home = Home(tmp_path / "user/.fermix")
    home.prepare()
    environ = {"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": "secret", "FERMIX_EXE": "/f", "XDG_CACHE_HOME": "/cache"}
    sandbox = Sandbox(SandboxSettings(), home, tmp_path, tmp_path / "user", environ)
    workers = Workers()
    become_subreaper()
    before = open_descriptors(), children()
    clock = ManualClock()
    policy = Policy(sandbox, home, {"sandbox": SandboxSettings}, workers, clock)
    yield Toolbox(home, tool_deps(home, policy, Approvals(clock), workers))
    workers.close()
    assert (open_descriptors(), children()) == before


def open_descriptors() -> list[str]:
    """By what they are, not by number: the sweep gives up its reserve and takes it again."""
    found: list[str] = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # a thread may close its own meanwhile
            found.append(str(path.readlink()))
    return sorted(name for name in found if name != f"/proc/{os.getpid()}/fd")
