"""Arguments that no tool expects, and a bench that calls every built-in tool with them through the dispatcher.

What must hold for any arguments: exactly one result, nothing raised, nothing outside the roots changed or told.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from fermix.agent.approvals import Approvals
from fermix.agent.capability import Capability
from fermix.agent.dispatch import Dispatcher
from fermix.agent.model import JsonObject, JsonValue, ToolCall, ToolResult
from fermix.agent.sandbox import Policy, Sandbox, SandboxSettings
from fermix.agent.tools.catalog import build_tools
from fermix.clock import SystemClock
from fermix.events import EventQueue, Events, ToolCalled, ToolStarted
from fermix.home import Home
from fermix.net import Net
from fermix.trust import Trust
from fermix.workers import Workers
from tests.fakes.tools import tool_deps
from tests.fakes.turns import make_scope, make_turn

SECRET = "c4n4ry0f7heFuzz3r"
BOUND_S = 20.0
MOST_MS = 60  # of a command that nobody can foresee
NAMES = ("notes.txt", "sub", "sub/deep.txt", "link", "dangling", "loop", "pipe", "binary", "r", ".", "")
PLACES = ("..", "../..", "~", "~/.ssh/id", "/", "/etc/passwd", "/proc/self/environ", "/dev/zero", "/proc/1/root/etc")
ODD = (
    "\0", "a\0b", "\ud800", "\u202e\u200b", "\n", " ", "%00", "a" * 5_000, "../" * 400, "/" * 300, "-rf", "--output=x",
    "-", "--", "*", "**/*", "[", "(a+)+$", "(?P<", "\\", "é", "e\u0301", "\uff0e\uff0e/", "${HOME}", "`id`",
    "$(id)", "🙂",
    "http://127.0.0.1:1/", "http://[::1]/", "file:///etc/passwd", "ext::sh -c id", "1e999", "null", "{}", '{"a": 1}',
)  # fmt: skip
COMMANDS = (
    "cat ../../.ssh/id; cat ~/.ssh/id", "echo x > ../../made; touch ~/made", "true", "exit 3", "kill -9 $$", "ls -la /",
    "cat /proc/*/environ",
    "ln -s ~/.ssh/id k; cat k", "echo \"", ")", "printf '\\377'",
    "rm -rf *; mkdir sub; echo a > notes.txt",
)  # fmt: skip
FOLDERS = {"working_dir": "sub", "repo": "r"}
NUMBERS = (0, 1, -1, 2, 10, 1_000, 2**31, 2**63, -(2**70), 10**30)


class Bench:
    """Every built-in tool over a home of its own, with a secret in each place that is closed."""

    def __init__(self, root: Path, tools: tuple[Capability, ...], events: Events, news: EventQueue) -> None:
        self.root = root
        self.tools = tools
        self._dispatcher = Dispatcher(events, SystemClock())
        self._news = news
        self._home = Home(root / "user/.fermix")
        self._before = dict(self._closed())

    async def call(self, tool: str, arguments: Mapping[str, JsonValue], trust: Trust) -> ToolResult:
        """Raises: AssertionError when something happened that must not."""
        turn = replace(make_turn(), trust=trust)
        scope = make_scope(*(one for one in self.tools if trust is Trust.OPERATOR or not one.owner_only), turn=turn)
        async with asyncio.timeout(BOUND_S):
            result = await self._dispatcher.dispatch(ToolCall("call00001", tool, arguments), scope)
        started, called = self._told()
        assert (started, called) == ([tool], [(tool, result.ok)])
        assert isinstance(result.text, str)
        result.text.encode("utf-8")
        assert SECRET not in result.text
        return result

    def check(self) -> None:
        """Raises: AssertionError when anything outside the roots is not as it was."""
        assert dict(self._closed()) == self._before

    def _told(self) -> tuple[list[str], list[tuple[str, bool]]]:
        items = [item.event for item in self._news.drain()]
        started = [event.name for event in items if isinstance(event, ToolStarted)]
        return started, [(event.name, event.ok) for event in items if isinstance(event, ToolCalled)]

    def _closed(self) -> Iterator[tuple[str, str]]:
        for folder, names, files in os.walk(self.root):
            names[:] = [name for name in names if Path(folder, name) not in (self._home.workspace, self._home.run)]
            for name in (*names, *files):
                path = Path(folder, name)
                content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
                yield str(path), f"{path.lstat().st_mode} {content}"


@asynccontextmanager
async def benched(root: Path) -> AsyncGenerator[Bench]:
    """Build it, and end all of it."""
    home, clock = Home(root / "user/.fermix"), SystemClock()
    home.prepare()
    for place in ("user/.ssh/id", "user/diary", "outside/other", "user/.fermix/auth.json", "user/.fermix/config.toml"):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text(f"# {SECRET}\n", encoding="utf-8")
    furnish(home.workspace, root)
    workers, events = Workers(), Events(clock)
    sandbox = Sandbox(
        SandboxSettings(), home, root, root / "user", {"PATH": "/usr/bin:/bin", "HOME": str(root / "user")}
    )
    policy = Policy(sandbox, home, {"sandbox": SandboxSettings}, workers, clock)
    try:
        async with Net.open(loopback_only=True) as net:
            with events.subscribe(10_000) as news:
                tools = build_tools(tool_deps(home, policy, Approvals(clock), workers, net=net))
                yield Bench(root, tools, events, news)
    finally:
        workers.close()


def furnish(workspace: Path, root: Path) -> None:
    """Put things of every kind into the workspace."""
    for name in ("sub", "r"):
        (workspace / name).mkdir()
    (workspace / "notes.txt").write_text("one\ntwo\n", encoding="utf-8")
    (workspace / "sub/deep.txt").write_text("deep\n", encoding="utf-8")
    (workspace / "binary").write_bytes(bytes(range(256)) * 9)
    (workspace / "link").symlink_to(root / "user/.ssh")
    (workspace / "dangling").symlink_to(root / "outside/not-there")
    (workspace / "loop").symlink_to("loop")
    os.mkfifo(workspace / "pipe")
    for arguments in (
        ["init"],
        ["-c", "user.name=x", "-c", "user.email=x@x", "commit", "--allow-empty", "-m", "first"],
    ):
        subprocess.run(["git", "-C", str(workspace / "r"), *arguments], check=True, capture_output=True)


def arguments_for(random: Random, tool: Capability) -> JsonObject:
    """Make arguments that more or less fit a tool's schema."""
    properties = tool.parameters.get("properties")
    found: JsonObject = {}
    for name, schema in (properties if isinstance(properties, dict) else {}).items():
        if random.random() < 0.93:
            found[name] = _value(random, name, schema if isinstance(schema, dict) else {})
    if random.random() < 0.04:
        found[random.choice(("trust", "__class__", "", "command", "path", "\ud800"))] = _anything(random)
    if tool.name in ("shell", "content_search"):
        found["timeout_ms" if tool.name == "shell" else "timeout"] = random.randint(1, MOST_MS)
    return found


def _value(random: Random, name: str, schema: JsonObject) -> JsonValue:
    if random.random() < 0.04:
        return _anything(random)
    if isinstance(choices := schema.get("enum"), list) and random.random() < 0.9:
        return random.choice(choices)
    makers: Mapping[str, Callable[[], JsonValue]] = {
        "string": lambda: _text(random, name),
        "integer": lambda: random.choice(NUMBERS) if random.random() < 0.15 else random.randint(1, 60),
        "number": lambda: random.choice((0.5, -1.0, 1e300)),
        "boolean": lambda: random.random() < 0.5,
        "array": lambda: [_text(random, name) for _ in range(random.randint(0, 4))],
        "object": lambda: {_text(random, "key"): _anything(random) for _ in range(random.randint(0, 3))},
    }
    return makers.get(str(schema.get("type")), lambda: _text(random, name))()


def _text(random: Random, name: str) -> str:
    if name == "command" and random.random() < 0.8:
        return random.choice(COMMANDS)
    if name in FOLDERS and random.random() < 0.7:
        return FOLDERS[name]
    if random.random() < 0.35:
        return random.choice(NAMES)
    if random.random() < 0.4:
        return "/".join(random.choice((*NAMES, *PLACES)) for _ in range(random.randint(1, 3)))
    if random.random() < 0.6:
        return random.choice(ODD)
    return "".join(
        chr(random.choice((random.randint(1, 127), random.randint(128, 0xD7FF)))) for _ in range(random.randint(0, 30))
    )


def _anything(random: Random) -> JsonValue:
    simple: tuple[JsonValue, ...] = (None, True, random.choice(NUMBERS), 1.5, random.choice(ODD), [], {}, [[[["x"]]]])
    value = random.choice(simple)
    return {"a": [value]} if random.random() < 0.2 else value


async def try_one(bench: Bench, random: Random) -> None:
    """Call some tool with some arguments."""
    tool = random.choice(bench.tools)
    arguments = arguments_for(random, tool)
    assert json.dumps(arguments)
    await bench.call(tool.name, arguments, Trust.GUEST if random.random() < 0.15 else Trust.OPERATOR)
