"""The real embedded model behind the real engine: what only they can show."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    Delta,
    TextDelta,
    ToolCallDelta,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from fermix.agent.providers.embedded import EmbeddedModel
from fermix.agent.providers.engine import TEMPLATE_EDITS, chat_template
from fermix.agent.providers.local_files import LocalFiles
from fermix.agent.providers.local_provider import LocalProvider
from fermix.clock import SystemClock
from fermix.config.model import LocalModelSettings
from fermix.events import Events
from fermix.net import Net
from fermix.supervisor import OUTSIDE, Supervisor
from tests.fakes.local_model import ROOT, real_model

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(180)]

PROGRAM = (sys.executable, "-m", "fermix")
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT)}
LOAD_S = 150.0


def _tool(name: str, description: str, argument: str) -> ToolSchema:
    properties = {argument: {"type": "string"}, "limit": {"type": "integer"}}
    return ToolSchema(name, description, {"type": "object", "properties": properties, "required": [argument]})


TOOLS = (
    _tool("file_read", "Read a text file.", "path"),
    _tool("glob_search", "Find files by name pattern.", "pattern"),
    _tool("content_search", "Search the text of files.", "pattern"),
    _tool("shell", "Run a shell command.", "command"),
)
SYSTEM = ("You are Fermix, a personal agent on your owner's machine. Answer briefly.",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models = tmp_path / "models"
    models.mkdir()
    (models / real_model().name).symlink_to(real_model())
    return models


@asynccontextmanager
async def _loaded(folder: Path) -> AsyncGenerator[tuple[EmbeddedModel, LocalProvider]]:
    clock = SystemClock()
    events = Events(clock)
    model = EmbeddedModel(LocalModelSettings(), LocalFiles.of(folder), PROGRAM, ENVIRON, events, clock)
    supervisor = Supervisor([model], OUTSIDE, events, clock)
    async with asyncio.timeout(LOAD_S), Net.open(loopback_only=True) as net, supervisor:
        yield model, LocalProvider.of(model, net)


async def _ask(provider: LocalProvider, *messages: ChatMessage) -> tuple[AssistantMessage, list[Delta]]:
    shown: list[Delta] = []
    completion = await provider.complete(ChatRequest(SYSTEM, messages, TOOLS), shown.append)
    return AssistantMessage(completion.text, completion.tool_calls), shown


async def test_it_really_reads_a_file_lists_a_folder_runs_a_command_and_chats(folder: Path) -> None:
    """The main job without a key: each question gets its call, the result is answered from, "hello" gets no call."""
    question = UserMessage("read notes.txt")
    async with _loaded(folder) as (_, provider):
        called, shown = await _ask(provider, question)
        (call,) = called.tool_calls
        result = ToolMessage(call.id, call.name, "The key is under the mat.", ok=True)
        answer, words = await _ask(provider, question, called, result)
        listed, _ = await _ask(provider, UserMessage("what is in this folder?"))
        ran, _ = await _ask(provider, UserMessage("run the command date"))
        greeted, _ = await _ask(provider, UserMessage("hello"))

    assert (call.name, call.arguments) == ("file_read", {"path": "notes.txt"})
    assert ToolCallDelta("file_read") in shown
    assert "mat" in answer.text
    assert len([delta for delta in words if isinstance(delta, TextDelta)]) > 1
    assert [(call.name, call.arguments) for call in listed.tool_calls] == [("glob_search", {"pattern": "*"})]
    assert [(call.name, call.arguments) for call in ran.tool_calls] == [("shell", {"command": "date"})]
    assert greeted.tool_calls == ()


async def test_nothing_but_health_is_served_without_the_key(folder: Path) -> None:
    """Other users of the machine can reach a loopback port."""
    async with _loaded(folder) as (model, _):
        endpoint = await model.endpoint()
        answers = await asyncio.get_running_loop().run_in_executor(None, _statuses, endpoint.base_url)

    assert answers == {"/health": 200, "/v1/chat/completions": 401, "/v1/models": 401, "/props": 401, "/slots": 401}


def _statuses(base_url: str) -> dict[str, int]:
    root = base_url.removesuffix("/v1")
    with httpx.Client(timeout=5, trust_env=False) as client:
        posted = client.post(f"{root}/v1/chat/completions", json={"messages": []}).status_code
        got = {path: client.get(root + path).status_code for path in ("/health", "/v1/models", "/props", "/slots")}
    return {**got, "/v1/chat/completions": posted}


async def test_killed_engine_is_loaded_again_by_the_next_call(folder: Path) -> None:
    """A crash costs the owner one message at most."""
    async with _loaded(folder) as (model, provider):
        before = await model.endpoint()
        os.kill(_engine_of(os.getpid()), signal.SIGKILL)
        while model.status["state"] == "loaded":
            await asyncio.sleep(0.01)
        greeted, _ = await _ask(provider, UserMessage("hello"))
        after = await model.endpoint()

    assert greeted.text
    assert after != before


def test_engine_ends_when_the_daemon_was_killed(folder: Path) -> None:
    """Nobody sweeps then; the engine watches its parent itself."""
    with closing(_daemon(folder)) as started:
        pid, engine = next(started)
        descriptor = os.pidfd_open(engine)
        try:
            os.kill(pid, signal.SIGKILL)

            assert select.select([descriptor], [], [], 5)[0]
        finally:
            os.close(descriptor)


def _daemon(folder: Path) -> Generator[tuple[int, int]]:
    """A process that loads the model and waits; gives its pid and its engine's."""
    script = (
        "import asyncio, sys; from pathlib import Path; from tests.agent.providers import test_real_model as t\n"
        "async def main():\n"
        "    async with t._loaded(Path(sys.argv[1])) as (model, _):\n"
        "        await model.endpoint(); print(t._engine_of(t.os.getpid()), flush=True); await asyncio.sleep(100)\n"
        "asyncio.run(main())\n"
    )
    argv = (sys.executable, "-c", script, str(folder))
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def _engine_of(parent: int) -> int:
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split():
        if b"_engine" in Path(f"/proc/{child}/cmdline").read_bytes():
            return int(child)
    raise AssertionError("no engine runs")


def test_template_names_the_fence_and_ends_with_our_sentence() -> None:
    """Each edit found its place; another release of the model must not pass unnoticed."""
    template = chat_template(real_model())

    assert all(new in template for _, new in TEMPLATE_EDITS)
    assert "<tool_call>" not in template
