"""`/stop` in every phase of a turn, with everything real but the model and the platform.

Each test holds a turn in one phase and types `/stop`. The acknowledgement reaches the platform while the phase is
still held, so it has waited for nothing; then nothing of the turn starts, and the next message is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from fermix.agent.capability import Capability, ToolContext
from fermix.agent.model import JsonValue, ToolResult
from fermix.gateway import delivery
from fermix.gateway.channel import StreamTier
from fermix.message import Attachment, ConversationKey, Text
from fermix.native.sweep import become_subreaper, children
from fermix.trust import PolicyClass
from tests.fakes.platform import AWAY, Platform, slow
from tests.fakes.provider import Answer, Asked, Call
from tests.fakes.turns import make_capability
from tests.gateway.whole import Whole, whole_in
from tests.waiting import until

KEY = ConversationKey("chat", "chat", "root")
LONG = "The quick brown fox jumps over the lazy dog. " * 40
FINE = Answer(text="Fine.")
PROGRAM = ": {mark}; (sh -c 'sleep 600; : {mark}') & setsid sh -c 'sleep 600; : {mark}' & wait"


async def stop(rooms: Whole, sender: str = "1") -> str:
    """Type it; returns what was acknowledged, once the platform has that."""
    await rooms.say("/stop", "stop", sender)
    await rooms.platform.until(lambda: any(entry.answers == "stop" for entry in rooms.platform.log("send")))
    return next(entry.text for entry in rooms.platform.log("send") if entry.answers == "stop")


async def goes_on(rooms: Whole) -> None:
    """The next message is answered, from a history that a strict provider takes and in which roles alternate."""
    asked = len(rooms.model.requests)
    await rooms.say("and now?", "next")
    assert await rooms.settled(1) == {"next": "completed"}
    assert rooms.platform.texts()[-1] == FINE.text
    assert rooms.model.refusals == []
    (request,) = rooms.model.requests[asked:]
    roles = [item["role"] for item in request.body["messages"] if item["role"] != "system"]
    assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"]


async def outcome(rooms: Whole, id: str = "m1") -> object:
    (found,) = await rooms.rows(f"SELECT outcome FROM inbox WHERE message_id = '{id}'")
    return found[0]


@pytest.fixture(autouse=True)
async def no_child_is_left() -> AsyncIterator[None]:
    become_subreaper()
    before = children()
    yield
    assert children() == before


@pytest.mark.parametrize("sender", ["1", "4"], ids=["the owner", "a commander"])
async def test_while_the_provider_is_silent(tmp_path: Path, sender: str) -> None:
    """QUE-01 (a): before the first word."""
    async with whole_in(tmp_path, [Answer(text="late", delay_s=600), FINE]) as rooms:
        await rooms.say("hi", sender="1")
        await until(lambda: rooms.model.requests)

        assert await stop(rooms, sender) == "Stopped."
        assert await rooms.settled(2) == {"m1": "cancelled", "stop": "handled"}
        await goes_on(rooms)
        assert (await outcome(rooms), len(rooms.model.requests)) == ("stopped", 2)


@pytest.mark.parametrize("tier", ["off", "block", "draft"])
async def test_while_the_model_streams(tmp_path: Path, tier: StreamTier) -> None:
    """QUE-01 (a): in the middle of the answer; a draft of it does not stay."""
    never = asyncio.Event()
    async with whole_in(tmp_path, [Answer(text=LONG, hold=never), FINE], can=("live", "drafts")) as rooms:
        rooms.gateway.use(streaming={"chat": tier}, album_quiet_s={})
        await rooms.say("hi")
        await until(lambda: rooms.platform.calls["open"] if tier == "draft" else rooms.channel.deltas)

        assert await stop(rooms) == "Stopped."
        assert await rooms.settled(2) == {"m1": "cancelled", "stop": "handled"}
        await asyncio.wait_for(rooms.model.drop.wait(), 5)
        assert rooms.platform.texts() == ["Stopped."]
        await goes_on(rooms)
        assert await outcome(rooms) == "stopped"


async def test_while_a_command_runs(tmp_path: Path) -> None:
    """QUE-01 (c): its children are gone, one in a session of its own as well; the call behind it never runs."""
    program = PROGRAM.format(mark=tmp_path)
    made = Answer(calls=(Call("shell", {"command": program}), Call("shell", {"command": "touch second"})))
    async with whole_in(tmp_path, [made, FINE]) as rooms:
        await rooms.say("hi")
        await until(lambda: _shells_of(tmp_path) >= 3)

        assert await stop(rooms) == "Stopped."
        assert await rooms.settled(2) == {"m1": "cancelled", "stop": "handled"}
        assert _shells_of(tmp_path) == 0
        await goes_on(rooms)
        assert not (rooms.workspace / "second").exists()
        assert (await outcome(rooms), len(rooms.model.requests)) == ("stopped", 2)


async def test_between_two_calls(tmp_path: Path) -> None:
    """QUE-01 (b): a stop that comes while a tool does not hear it is obeyed before the next one."""
    entered, ran = asyncio.Event(), 0

    async def deaf(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        nonlocal ran
        ran += 1
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return ToolResult(True, "done")
        raise AssertionError

    made = Answer(calls=(Call("deaf"), Call("deaf")))
    async with whole_in(tmp_path, [made, FINE], make_capability("deaf", deaf)) as rooms:
        await rooms.say("hi")
        await asyncio.wait_for(entered.wait(), 5)

        assert await stop(rooms) == "Stopped."
        assert await rooms.settled(2) == {"m1": "cancelled", "stop": "handled"}
        await goes_on(rooms)
        assert (ran, len(rooms.model.requests)) == (1, 2)


async def test_while_a_command_is_being_ended_a_second_stop_changes_nothing(tmp_path: Path) -> None:
    """Whoever types it twice does not cut off the tidying up that the first one began."""
    entered, tidied, go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_end(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await go.wait()
            tidied.set()
        raise AssertionError

    async with whole_in(tmp_path, [Answer(calls=(Call("slow"),)), FINE], make_capability("slow", slow_to_end)) as rooms:
        await rooms.say("hi")
        await asyncio.wait_for(entered.wait(), 5)
        assert await stop(rooms) == "Stopped."
        await rooms.say("/stop", "again")
        await rooms.platform.until(lambda: any(entry.answers == "again" for entry in rooms.platform.log("send")))
        assert not tidied.is_set()
        go.set()

        assert await rooms.settled(3) == {"m1": "cancelled", "stop": "handled", "again": "handled"}
        assert tidied.is_set()
        await goes_on(rooms)


async def test_while_the_answer_is_on_the_wire(tmp_path: Path) -> None:
    """A send that has begun is awaited and recorded; it was answered, and the history says so."""
    gate = asyncio.Event()
    async with whole_in(tmp_path, [Answer(text="Here."), FINE]) as rooms:
        rooms.platform.fail("send", slow(gate))
        await rooms.say("hi")
        await rooms.platform.until(lambda: rooms.platform.calls["send"] == 1)

        assert await stop(rooms) == "Stopped."
        assert await outcome(rooms) is None
        gate.set()
        assert await rooms.settled(2) == {"stop": "handled", "m1": "completed"}
        assert await outcome(rooms) == "answered"
        assert await rooms.rows("SELECT text, state FROM outbox WHERE entry_id = 1") == [("Here.", "sent")]
        await goes_on(rooms)
        assert (await rooms.conversations.history(KEY))[1].text == "Here."  # type: ignore[union-attr]


async def test_while_the_first_of_several_parts_is_on_the_wire(tmp_path: Path) -> None:
    """No further send begins."""
    gate = asyncio.Event()
    platform = Platform(text_limit=200)
    async with whole_in(tmp_path, [Answer(text=LONG[:500]), FINE], platform=platform) as rooms:
        platform.fail("send", slow(gate))
        await rooms.say("hi")
        await platform.until(lambda: platform.calls["send"] == 1)

        assert await stop(rooms) == "Stopped."
        gate.set()
        assert await rooms.settled(2) == {"stop": "handled", "m1": "cancelled"}
        states = await rooms.rows("SELECT state FROM outbox WHERE entry_id = 1 ORDER BY id")
        assert states == [("sent",), *[("failed",)] * (len(states) - 1)]
        assert len(states) > 2
        assert platform.calls["send"] == 2
        await goes_on(rooms)
        assert await outcome(rooms) == "stopped"


async def test_while_a_tools_own_message_is_on_the_wire(tmp_path: Path) -> None:
    """It is awaited and recorded as well, and the tool goes no further."""
    gate, after = asyncio.Event(), asyncio.Event()

    async def tells(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        await context.port.send(Text("from the tool"))
        after.set()
        return ToolResult(True, "told")

    async with whole_in(tmp_path, [Answer(calls=(Call("tell"),)), FINE], _telling(tells)) as rooms:
        rooms.platform.fail("send", slow(gate))
        await rooms.say("hi")
        await rooms.platform.until(lambda: rooms.platform.calls["send"] == 1)

        assert await stop(rooms) == "Stopped."
        gate.set()
        assert await rooms.settled(2) == {"stop": "handled", "m1": "cancelled"}
        assert await rooms.rows("SELECT text, state FROM outbox WHERE entry_id = 1") == [("from the tool", "sent")]
        assert rooms.platform.texts() == ["Stopped.", "from the tool"]
        assert not after.is_set()
        await goes_on(rooms)


async def test_while_a_send_that_never_ends_is_on_the_wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Awaited to its deadline and no longer, then noted as of unknown fate and not repeated."""
    monkeypatch.setattr(delivery, "SEND_S", 0.05)
    async with whole_in(tmp_path, [Answer(text="Here."), FINE]) as rooms:
        rooms.platform.fail("send", slow(asyncio.Event()))
        await rooms.say("hi")
        await rooms.platform.until(lambda: rooms.platform.calls["send"] == 1)

        assert await stop(rooms) == "Stopped."
        assert await rooms.settled(2) == {"stop": "handled", "m1": "cancelled"}
        assert await rooms.rows("SELECT state, marked FROM outbox WHERE entry_id = 1") == [("failed", 0)]
        assert rooms.platform.texts() == ["Stopped."]
        await goes_on(rooms)


async def test_while_a_block_of_the_answer_is_on_the_wire(tmp_path: Path) -> None:
    gate, never = asyncio.Event(), asyncio.Event()
    async with whole_in(tmp_path, [Answer(text=LONG * 2, hold=never), FINE], can=("live",)) as rooms:
        rooms.gateway.use(streaming={"chat": "block"}, album_quiet_s={})
        rooms.platform.fail("send", slow(gate))
        await rooms.say("hi")
        await until(lambda: rooms.channel.deltas)
        await rooms.clock.until_asleep()
        rooms.clock.advance(1.0)
        await rooms.platform.until(lambda: rooms.platform.calls["send"] == 1)

        assert await stop(rooms) == "Stopped."
        gate.set()
        assert await rooms.settled(2) == {"stop": "handled", "m1": "cancelled"}
        assert await rooms.rows("SELECT state FROM outbox WHERE entry_id = 1") == [("sent",)]
        assert rooms.platform.calls["send"] == 2
        await goes_on(rooms)


async def test_while_a_failed_send_waits_for_its_next_try(tmp_path: Path) -> None:
    async with whole_in(tmp_path, [Answer(text="Here."), FINE]) as rooms:
        rooms.platform.fail("send", AWAY)
        await rooms.say("hi")
        await rooms.clock.until_asleep()

        assert await stop(rooms) == "Stopped."
        assert await rooms.settled(2) == {"m1": "cancelled", "stop": "handled"}
        assert rooms.platform.texts() == ["Stopped."]
        assert await rooms.rows("SELECT state FROM outbox WHERE entry_id = 1") == [("failed",)]
        await goes_on(rooms)
        assert await outcome(rooms) == "stopped"


async def test_while_a_draft_is_being_opened(tmp_path: Path) -> None:
    """It is awaited, so that it can be taken away."""
    gate, never = asyncio.Event(), asyncio.Event()
    async with whole_in(tmp_path, [Answer(text=LONG, hold=never), FINE], can=("drafts",)) as rooms:
        rooms.platform.fail("open", slow(gate))
        await rooms.say("hi")
        await rooms.platform.until(lambda: rooms.platform.calls["open"] == 1)

        assert await stop(rooms) == "Stopped."
        gate.set()
        assert await rooms.settled(2) == {"stop": "handled", "m1": "cancelled"}
        assert rooms.platform.texts() == ["Stopped."]
        assert rooms.platform.calls["open"] == 1
        await goes_on(rooms)


@pytest.mark.parametrize(("limit", "ends"), [(None, "completed"), (1_200, "cancelled")])
async def test_while_a_draft_is_being_sealed(tmp_path: Path, limit: int | None, ends: str) -> None:
    """The seal is the send of the first part: it is awaited and recorded, and no other part follows."""
    gate, written = asyncio.Event(), asyncio.Event()
    platform = Platform(text_limit=limit)
    script = [Answer(text=LONG, hold=written), FINE]
    async with whole_in(tmp_path, script, can=("drafts",), platform=platform) as rooms:
        await rooms.say("hi")
        await platform.until(lambda: platform.calls["open"] == 1)
        platform.fail("edit", slow(gate))
        written.set()
        while not await rooms.rows("SELECT 1 FROM outbox"):
            await asyncio.sleep(0)
        rooms.clock.advance(1.0)
        await platform.until(lambda: platform.calls["edit"] == 1)

        assert await stop(rooms) == "Stopped."
        gate.set()
        assert await rooms.settled(2) == {"m1": ends, "stop": "handled"}
        (first, *others) = await rooms.rows("SELECT text, state FROM outbox WHERE entry_id = 1 ORDER BY id")
        assert first[1] == "sent"
        assert {state for _, state in others} <= {"failed"}
        assert [one.text for one in platform.shown() if one.answers == "m1"] == [first[0]]
        await goes_on(rooms)


async def test_while_a_draft_waits_for_the_pace_of_its_platform(tmp_path: Path) -> None:
    """The seal has not begun: the draft goes, and nothing is sent in its place."""
    written = asyncio.Event()
    async with whole_in(tmp_path, [Answer(text=LONG, hold=written), FINE], can=("drafts",)) as rooms:
        await rooms.say("hi")
        await rooms.platform.until(lambda: rooms.platform.calls["open"] == 1)
        written.set()
        while not await rooms.rows("SELECT 1 FROM outbox"):
            await asyncio.sleep(0)

        assert await stop(rooms) == "Stopped."
        assert await rooms.settled(2) == {"m1": "cancelled", "stop": "handled"}
        assert rooms.platform.texts() == ["Stopped."]
        assert await rooms.rows("SELECT state FROM outbox WHERE entry_id = 1") == [("failed",)]
        await goes_on(rooms)


async def test_while_the_message_only_waits(tmp_path: Path) -> None:
    """QUE-01 (e): dropped, and the text says so."""
    async with whole_in(tmp_path, [Answer(text="late", delay_s=600), FINE]) as rooms:
        await rooms.say("hi")
        await until(lambda: rooms.model.requests)
        await rooms.say("waits", "m2")
        await rooms.say("waits too", "m3")

        assert await stop(rooms) == "Stopped. 2 waiting messages were dropped."
        settled = await rooms.settled(4)
        assert settled == {"m1": "cancelled", "m2": "cancelled", "m3": "cancelled", "stop": "handled"}
        await goes_on(rooms)
        assert await rooms.rows("SELECT outcome FROM inbox WHERE message_id LIKE 'm%'") == [("stopped",)] * 3
        texts = [item.text for item in await rooms.conversations.history(KEY)]
        assert "waits" not in texts


async def test_while_its_picture_is_on_the_way(tmp_path: Path) -> None:
    """QUE-01: what has not become a turn yet is dropped, and the download with it."""
    gate = asyncio.Event()
    async with whole_in(tmp_path, [FINE], can=("downloads",)) as rooms:
        rooms.platform.fail("download", slow(gate))
        await rooms.say("what is this?", attachments=(Attachment("image", "ref", "image/png"),))
        await rooms.platform.until(lambda: rooms.platform.calls["download"] == 1)

        assert await stop(rooms) == "Nothing was running. 1 waiting message was dropped."
        assert await rooms.settled(2) == {"m1": "cancelled", "stop": "handled"}
        await goes_on(rooms)
        assert (await outcome(rooms), len(rooms.model.requests)) == ("stopped", 1)
        assert rooms.platform.log("download") == []


async def test_while_the_model_asks_for_one_folder_after_another(tmp_path: Path) -> None:
    """QUE-03: the stop does not wait for the end of the variants, and none comes after it."""
    folders = [tmp_path / f"shut{number}" for number in range(20)]
    for folder in folders:
        folder.mkdir()

    def variants(asked: Asked) -> Answer:
        made = sum(item["role"] == "tool" for item in asked.body["messages"])
        if not asked.body["messages"][-1]["content"].startswith("sort") and not made:
            return FINE
        arguments = {"path": str(folders[made]), "reason": "to look"}
        return Answer(calls=(Call("request_directory_access", arguments),), delay_s=600 if made == 3 else 0)

    async with whole_in(tmp_path, variants) as rooms:
        await rooms.say("sort my photos")
        await until(lambda: len(rooms.model.requests) == 4)

        assert await stop(rooms) == "Stopped."
        assert await rooms.settled(2) == {"m1": "cancelled", "stop": "handled"}
        assert len(rooms.platform.texts()) == 4  # three questions and the acknowledgement
        await goes_on(rooms)


async def test_while_an_album_waits_for_its_other_parts(tmp_path: Path) -> None:
    """QUE-01: all its parts are dropped; a part that comes afterwards begins anew."""
    async with whole_in(tmp_path, [FINE], can=("downloads",)) as rooms:
        rooms.gateway.use(streaming={}, album_quiet_s={"chat": 3.0})
        for id in ("m1", "m2"):
            await rooms.say("", id, attachments=(Attachment("image", "ref", "image/png"),), album="al")
        await rooms.clock.until_asleep()

        assert await stop(rooms) == "Nothing was running. 1 waiting message was dropped."
        assert await rooms.settled(3) == {"m1": "cancelled", "m2": "cancelled", "stop": "handled"}
        await goes_on(rooms)
        assert await rooms.rows("SELECT outcome FROM inbox WHERE message_id LIKE 'm%'") == [("stopped",)] * 2
        assert rooms.platform.calls["download"] == 0


async def test_from_a_client_that_asks_for_it_without_a_message(tmp_path: Path) -> None:
    """The key that stops a turn in the terminal: the same end, and nobody has to be told."""
    async with whole_in(tmp_path, [Answer(text="late", delay_s=600), FINE]) as rooms:
        await rooms.say("hi")
        await until(lambda: rooms.model.requests)
        assert rooms.gateway.stop(KEY) == (1, 0)
        assert await rooms.settled(1) == {"m1": "cancelled"}
        await goes_on(rooms)


def _shells_of(mark: Path) -> int:
    """Count the living shells with the mark in their command; those that only wait for their end are gone."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            found += words[0].endswith(b"sh") and any(str(mark).encode() in word for word in words[2:])
    return found


def _telling(run: object) -> Capability:
    assert callable(run)
    return make_capability("tell", run, policy=PolicyClass.EXTERNAL_API)
