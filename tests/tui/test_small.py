"""A terminal may become as small as it likes while the screen is up; it was checked for size at the start only."""

from __future__ import annotations

import pytest

from fermix.tui.screens.catalog import SCREENS
from tests.tui.conftest import OpenApp

SIZES = [(40, 5), (12, 12), (6, 4), (5, 3), (3, 2), (2, 2), (1, 1), (1, 40), (100, 1)]


@pytest.mark.parametrize("keys", ["", *(each.keys for each in SCREENS)])
async def test_screen_survives_every_size(stage: OpenApp, keys: str):
    """TUI-02 and issue 2: it survives resize, also of a pane that is squeezed to nothing and back."""
    async with stage(size=(100, 30)) as on:
        on.begin("m1", "hi 你好")
        on.say("m1", "thinking", kind="reasoning")
        on.daemon.emit("tool.started", session="cli", message_id="m1", call_id="c", name="shell", arguments="{}")
        on.finish("m1", "# A 你\n\n| a | b |\n|-|-|\n| 1 | 2 |\n\n```py\ncode\n```\n\n- x\n\n> q\n\n1. y")
        await on.until_seen("code")
        if keys:
            await on.pilot.press(keys)
        for size in SIZES:
            await on.pilot.resize_terminal(*size)
            await on.pilot.pause()
        await on.pilot.resize_terminal(100, 30)
        await on.pilot.pause()

        assert on.app.is_running
