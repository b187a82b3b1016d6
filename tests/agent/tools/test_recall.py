from __future__ import annotations

from dataclasses import replace

import pytest

from fermix.agent.dispatch import Dispatcher
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.results import framed, unframed
from fermix.agent.tools import recall
from fermix.clock import SystemClock
from fermix.events import Events
from tests.fakes.turns import make_call, make_scope

TEXT = "".join(f"{number:05d}\n" for number in range(10_000))
ORIGINALS = {"call00001": TEXT, "call00002": framed(TEXT, "web_fetch"), "call00003": "short"}


async def ask(**arguments: JsonValue) -> ToolResult:
    scope = replace(make_scope(*recall.tools()), originals=dict(ORIGINALS))
    return await Dispatcher(Events(SystemClock()), SystemClock()).dispatch(
        make_call("tool_result_recall", **arguments), scope
    )


async def test_whole_text_comes_back_in_parts() -> None:
    """Reference 4, 1.5: the original of a digest is read back; each part says where the next one begins."""
    first = await ask(call_id="call00001")
    second = await ask(call_id="call00001", offset=16_000, limit=50_000)

    assert first.text == f"{TEXT[:16_000]}\n[characters 0 to 16000 of 60000; go on with offset 16000]"
    assert second.text == TEXT[16_000:]


async def test_words_from_outside_come_back_in_a_frame() -> None:
    """INJ-01: what was framed stays framed, and what was ours stays ours."""
    foreign, own = await ask(call_id="call00002", limit=6), await ask(call_id="call00003")

    inside = unframed(foreign.text)
    assert inside is not None
    assert inside[1].startswith("00000\n\n[characters 0 to 6 of 60000")
    assert foreign.outside
    assert (own.text, own.outside) == ("short", False)


async def test_offset_behind_the_end_is_an_empty_part() -> None:
    assert (await ask(call_id="call00003", offset=99)).text == "(no output)"


async def test_result_that_is_gone_is_said() -> None:
    """The originals end with their turn; a digest in the history still names its call."""
    result = await ask(call_id="call99999")

    assert not result.ok
    assert "call the tool again" in result.text


@pytest.mark.parametrize("more", [{"offset": -1}, {"limit": 0}, {"limit": 50_001}, {"line": 3}], ids=str)
async def test_part_that_is_none_is_refused(more: dict[str, JsonValue]) -> None:
    assert "arguments do not fit" in (await ask(call_id="call00001", **more)).text
