"""Whatever the model says is on the screen, also where Markdown would draw nothing."""

from __future__ import annotations

import pytest

from tests.tui.conftest import OpenApp, Stage


def between_question_and_signature(on: Stage) -> str:
    return on.seen.partition("how many?")[2].partition("openai/gpt-5.5")[0]


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ("4.", "4."),
        ("-", "•"),
        ("1.\n2.", "2."),
        ("1. 2. 3.", "3."),
        ("#", "#"),
        ("# ##", "#"),
        (">", "▌"),
        ("***", "────"),
        ("---", "────"),
        ("```", "```"),
        ("```python", "```python"),
        ("~~~", "~~~"),
        ("> ```\n> ```", "```"),
        ("<br>", "<br>"),
        ("</think>", "</think>"),
        ("<!-- done -->", "<!-- done -->"),
        ("[ ]", "[ ]"),
        ("[note]: http://localhost/a", "[note]: http://localhost/a"),
        ("see [](http://localhost/a)", "see http://localhost/a"),
        ("[]()", "[]()"),
        ("&nbsp;", "&nbsp;"),
        ("``` ```", "``` ```"),
        ("| a |\n|---|\n| 1 | two |", "| 1 | two |"),
        ("The sum is\n\n4.\n\nSure?", "4."),
    ],
)
async def test_reply_is_never_invisible(stage: OpenApp, reply: str, shown: str):
    """An answer such as "4." is an ordered list without a text; it is an answer all the same."""
    async with stage(size=(60, 20)) as on:
        message_id = await on.send("how many?")
        on.begin(message_id)
        on.finish(message_id, reply)
        await on.until(lambda: shown in between_question_and_signature(on))


async def test_empty_item_that_streams_on_becomes_its_text(stage: OpenApp):
    async with stage(size=(60, 20)) as on:
        message_id = await on.send("how many?")
        on.begin(message_id)
        on.say(message_id, "4.")
        await on.until_seen(" 4.")
        on.say(message_id, " apples\n\n```")
        await on.until_seen("4. apples")
        on.say(message_id, "python\nprint(4)")
        await on.until_seen("print(4)")

        assert "```" not in on.seen
