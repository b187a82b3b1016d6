"""What a person sees, as pictures kept beside this file. Look at a picture before you accept it.

UPDATE_PICTURES=1 python -m pytest tests/tui/test_pictures.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fermix.tui.widgets import tool_card, waiting
from fermix.tui.widgets.prompt import Prompt
from tests.fakes.daemon import READY, FakeDaemon
from tests.tui.conftest import OpenApp, Stage

SETTLED_S = 0.5  # only while a picture is accepted
PICTURES = Path(__file__).parent / "pictures"
README_PICTURE = Path(__file__).parents[2] / "docs" / "tui.svg"

ANSWER = """\
Your notes name **three** open points:

1. The backup runs at *night*, but nobody reads its log.
2. `notes/2026-01.md` still lists the old address.
3. 你好 is greeted as 안녕 in one place. 👩‍👩‍👧 🇻🇳

```python
def overdue(points: list[Point], today: date) -> list[Point]:
    \"\"\"Points that should be done by now, the oldest first.\"\"\"
    return sorted((p for p in points if p.due < today), key=lambda p: p.due)
```

| point | due | owner |
|---|---|---|
| log | 3 March | you |
| address | 1 April | you |

> Shall I write these into `todo.md`?
"""


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spinner has one frame and no picture catches a blinking cursor."""
    monkeypatch.setattr(tool_card, "SPINNER", "⠋")
    monkeypatch.setattr(waiting, "SPINNER", "⠋")
    monkeypatch.setattr(waiting, "PATIENCE_S", 1_000)
    monkeypatch.setattr(Prompt, "cursor_blink", False)


def picture(on: Stage) -> str:
    """The screen as SVG, without what differs from run to run and without a font from elsewhere."""
    svg = on.app.export_screenshot(simplify=True)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"terminal-\d+", "terminal", svg)


async def check(on: Stage, name: str) -> None:
    """The screen becomes the kept picture."""
    kept = PICTURES / f"{name}.svg"
    if os.environ.get("UPDATE_PICTURES"):
        await on.pilot.pause(SETTLED_S)
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(picture(on), encoding="utf-8")
    assert kept.exists(), f"there is no picture {name!r} yet: look at it and accept it"
    wanted = kept.read_text(encoding="utf-8")

    await on.until(lambda: picture(on) == wanted)


async def answered(on: Stage) -> None:
    message_id = await on.send("What is open in my notes?")
    on.begin(message_id, "What is open in my notes?")
    on.say(message_id, "I look at your notes first.")
    for call_id, name, arguments, ok, result in (
        ("c1", "glob_search", '{"pattern": "notes/**/*.md"}', True, "notes/2026-01.md\nnotes/ideas.md"),
        ("c2", "file_read", '{"path": "notes/private.md"}', False, "notes/private.md: not found"),
    ):
        call = {"session": "cli", "turn_id": "t1", "call_id": call_id, "name": name}
        on.daemon.emit("tool.started", **call, arguments=arguments)
        on.daemon.emit("tool.finished", **call, ok=ok, duration_s=0.12, result=result)
    on.say(message_id, ANSWER[:40])
    on.finish(message_id, ANSWER)
    await on.until(lambda: on.app.desk.conversation.idle)
    await on.until_seen("Shall I write")


async def running(on: Stage) -> None:
    await answered(on)
    message_id = await on.send("Yes, and list what changed.")
    on.begin(message_id, "Yes, and list what changed.")
    on.say(message_id, "I write the list now.")
    call = {"session": "cli", "turn_id": "t2", "call_id": "c3", "name": "shell"}
    on.daemon.emit("tool.started", **call, arguments='{"command": "git diff --stat"}')
    await on.until_seen("running shell")
    waits = [{"id": "w1", "text": "Then mail it to me"}, {"id": "w2", "text": "And tell me the time"}]
    on.daemon.emit("queue.changed", session="cli", running=message_id, waiting=waits)
    await on.until_seen("And tell me the time")


async def failed(on: Stage) -> None:
    message_id = await on.send("Say something")
    on.begin(message_id)
    on.daemon.emit(
        "turn.ended",
        session="cli",
        message_id=message_id,
        outcome="failed",
        error="OpenAI refused the key (401). Set a new one with `fermix setup`.",
    )
    await on.until_seen("refused the key")
    on.daemon.up = False
    on.daemon.drop()
    await on.pilot.press(*"and this one waits", "enter")
    await on.until_seen("held until")
    await on.until_seen("no daemon: type")


async def nothing(on: Stage) -> None:
    await on.until_seen("connected")


async def typing(on: Stage) -> None:
    await nothing(on)
    on.app.screen.query_one(Prompt).insert("First line\nsecond line with 你好 and 👩‍👩‍👧\nthird")
    await on.until_seen("third")


async def conversations(on: Stage) -> None:
    await answered(on)
    on.daemon.conversations = [
        {"session": "cli", "title": "What is open in my notes?", "last_at": "2026-03-01T10:20:30Z", "messages": 2},
        {"session": "chat-1", "title": "[red] 你好, plan\nthe trip", "last_at": "2026-02-27T08:00:00Z", "messages": 1},
    ]
    await on.pilot.press("ctrl+r")
    await on.until_seen("plan…")


async def first_run(on: Stage) -> None:
    await on.until_seen("The local model")


async def download(on: Stage) -> None:
    await first_run(on)
    await on.pilot.press("enter")
    await on.daemon.wait_for("model.fetch")
    on.daemon.emit(
        "download",
        name="qwen2.5-coder-0.5b-instruct",
        done_bytes=200_000_000,
        total_bytes=491_400_064,
        state="running",
        error="",
    )
    await on.until_seen("41%")


async def key(on: Stage) -> None:
    await first_run(on)
    await on.pilot.press("down", "enter", "enter", *"sk-secret")
    await on.until_seen("•••••••••")


NO_PROVIDER = {**READY, "overall": "setup_required", "model": None, "providers": []}
Scene = Callable[[Stage], Awaitable[None]]


@pytest.mark.parametrize(
    ("scene", "size"),
    [
        (nothing, (100, 28)),
        (nothing, (40, 16)),
        (typing, (80, 20)),
        (answered, (100, 46)),
        (answered, (40, 60)),
        (running, (100, 48)),
        (failed, (80, 20)),
        (conversations, (100, 30)),
    ],
)
async def test_chat_looks_as_it_did(stage: OpenApp, scene: Scene, size: tuple[int, int]):
    async with stage(size=size) as on:
        await scene(on)
        await check(on, f"{scene.__name__}-{size[0]}")


@pytest.mark.parametrize("scene", [first_run, download, key])
async def test_first_run_looks_as_it_did(stage: OpenApp, scene: Scene):
    async with stage(FakeDaemon(status=NO_PROVIDER), size=(90, 26)) as on:
        await scene(on)
        await check(on, scene.__name__)


def test_picture_in_the_readme_is_the_screen_of_today():
    """To renew it: copy the accepted picture."""
    assert (PICTURES / "running-100.svg").read_bytes() == README_PICTURE.read_bytes()


async def test_screen_after_many_resizes_is_the_screen_at_that_size(stage: OpenApp):
    """TUI-02: one clean frame equal to a fresh render at that size."""
    async with stage(size=(100, 46)) as on:
        await answered(on)
        for columns in (40, 200, 57, 120, 41, 160, 80):
            await on.pilot.resize_terminal(columns, 40)
        await on.pilot.resize_terminal(100, 46)
        await check(on, "answered-100")
