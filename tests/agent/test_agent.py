from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from fermix.agent.agent import FAILED, STOPPED
from fermix.agent.capability import ToolContext
from fermix.agent.compaction.settings import CompactionSettings
from fermix.agent.memory import Conversations, Entry
from fermix.agent.model import (
    AssistantMessage,
    ChatMessage,
    ChatRequest,
    Completion,
    JsonValue,
    ToolResult,
    Usage,
    UserMessage,
)
from fermix.agent.providers.provider import OnDelta
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.turn import Cancelled, Completed, Failed
from fermix.config.load import load
from fermix.config.model import CLOSED
from fermix.errors import ConfigError
from fermix.home import Home
from fermix.message import Attachment, ConversationKey
from fermix.store import Database
from fermix.trust import PolicyClass, Trust
from tests.agent.conftest import World
from tests.fakes.channel import message
from tests.fakes.router import ScriptedRouter, calls, says
from tests.fakes.turns import make_call, make_capability, make_turn
from tests.gateway.conftest import Install
from tests.requirements import covers


async def shown(world: World) -> list[tuple[str, str]]:
    entries: tuple[Entry, ...] = await world.conversations.entries(make_turn().key, 100)
    return [(entry.role, entry.text) for entry in entries]


async def test_what_a_turn_wrote_after_words_from_outside_is_marked(world: World) -> None:
    """R-49: in the turn that read them and in later ones, so that a search tells it from the agent's own words."""
    first, second = make_turn("read it"), make_turn("say it again")
    router = ScriptedRouter([calls(make_call()), says("It says so."), says("So.")])
    async with world.open(router, make_capability(policy=PolicyClass.NETWORK)) as agent:
        for turn in (first, second):
            outcome = await world.run(agent, turn)
            assert isinstance(outcome, Completed)
            await agent.commit(turn, outcome)
        rows = await world.conversations.rows(first.key)

    assert [row.outside for row in rows] == [False, True, True, True, False, True]


@covers("commit.after-delivery")
async def test_reply_is_stored_only_by_the_commit(world: World) -> None:
    """Architecture, message-to-reply, step 7: deliver, then store the reply with the calls that led to it."""
    router = ScriptedRouter([calls(make_call(), text="Looking."), says("Found.")])
    async with world.open(router, make_capability()) as agent:
        outcome = await world.run(agent, make_turn("find it"))
        before = await shown(world)
        assert isinstance(outcome, Completed)
        await agent.commit(make_turn(), outcome)

    assert before == [("user", "find it")]
    assert await shown(world) == [
        ("user", "find it"),
        ("assistant", "Looking."),
        ("tool", "done"),
        ("assistant", "Found."),
    ]
    entries = await world.conversations.entries(make_turn().key, 1)
    assert entries[0].model == "fake/script-1"


@pytest.mark.parametrize(
    ("outcome", "marker", "told"),
    [(Cancelled(), STOPPED, STOPPED), (Failed("sorry", "down"), FAILED, "sorry")],
    ids=["stopped", "failed"],
)
async def test_turn_without_an_answer_is_closed_and_never_answered_later(
    world: World, outcome: Cancelled | Failed, marker: str, told: str
) -> None:
    """Issue 2, agent loop: a failed or stopped turn is closed by a marker; a screen shows what the sender was told."""
    router = ScriptedRouter([says("one"), says("two")])
    async with world.open(router) as agent:
        await world.run(agent, make_turn("first"))
        await agent.abandon(make_turn(), outcome)
        await world.run(agent, make_turn("second", turn_id="t2"))

    assert await shown(world) == [("user", "first"), ("note", told), ("user", "second")]
    assert router.requests[1].messages == (
        UserMessage("first"),
        AssistantMessage(marker),
        UserMessage("second"),
    )


async def test_commit_of_a_cleared_conversation_writes_nothing(world: World) -> None:
    """Reference 3, 9.1: a turn that began before /new cannot write into what came after."""
    async with world.open(ScriptedRouter([says("late")])) as agent:
        outcome = await world.run(agent, make_turn())
        await world.conversations.clear(make_turn().key)
        assert isinstance(outcome, Completed)
        await agent.commit(make_turn(), outcome)

    assert await shown(world) == []


async def test_question_of_a_conversation_that_is_cleared_meanwhile_is_not_stored(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reference 3, 9.1: a /new between reading the history and storing the question belongs before the question."""
    read = world.conversations.history

    async def read_and_clear(key: ConversationKey, *, before: int | None = None) -> tuple[ChatMessage, ...]:
        earlier = await read(key, before=before)
        await world.conversations.clear(key)
        return earlier

    monkeypatch.setattr(world.conversations, "history", read_and_clear)
    async with world.open(ScriptedRouter([says("late")])) as agent:
        await world.run(agent, make_turn("old question"))

    assert await shown(world) == []


@covers("turn.snapshot")
async def test_change_of_tools_in_the_middle_of_a_turn_reaches_the_next_one_only(world: World) -> None:
    """Issue 2, agent loop: a turn takes one frozen snapshot; a change drops the cache for the next turn."""

    async def grow(arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        world.registry.register(make_capability("newcomer"))
        agent.invalidate()
        return ToolResult(True, "grown")

    script = [calls(make_call("grow")), calls(make_call("newcomer", 2)), says("done"), says("next")]
    router = ScriptedRouter(script)
    async with world.open(router, make_capability("grow", grow)) as agent:
        await world.run(agent, make_turn())
        await agent.abandon(make_turn(), Cancelled())
        await world.run(agent, make_turn(turn_id="t2"))

    names = [[tool.name for tool in request.tools] for request in router.requests]
    assert names == [["grow"], ["grow"], ["grow"], ["grow", "newcomer"]]
    assert "unknown or unavailable" in router.requests[2].messages[-1].text


async def test_context_is_built_once_for_turns_that_start_together(world: World) -> None:
    """Reference 4, 1.2: the context is cached; a slow build holds up nobody twice."""
    async with world.open(ScriptedRouter([says("a")] * 4)) as agent:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(world.run(agent, make_turn(turn_id=f"t{number}", chat_id=f"c{number}")))
        await world.run(agent, make_turn(turn_id="t9", chat_id="c9"))

    assert world.workers.ran == ["seed", "load"]


async def test_change_during_a_build_is_not_cached_away(world: World) -> None:
    """The turn that was waiting may still run on the old files; the next one must not."""
    router = ScriptedRouter([says("a"), says("b")])
    async with world.open(router) as agent, asyncio.TaskGroup() as group:
        task = group.create_task(world.run(agent, make_turn()))
        while world.workers.ran == ["seed"]:
            await asyncio.sleep(0)
        (world.home.bootstrap / "SOUL.md").write_text("Sing.", encoding="utf-8")
        agent.invalidate()
        await task
        await world.run(agent, make_turn(turn_id="t2", chat_id="c2"))

    assert "Sing." in router.requests[1].system
    assert world.workers.ran == ["seed", "load", "load"]


async def test_new_configuration_reaches_the_next_turn_and_not_the_running_one(world: World) -> None:
    """Issue 2, agent loop: a change of config never reaches a running turn."""
    new_router = ScriptedRouter([says("new")])

    async def change(request: ChatRequest, on_delta: OnDelta) -> Completion:
        agent.reconfigure(
            registry=CapabilityRegistry(),
            router=new_router,
            settings=world.settings("Bea"),
            compaction=CompactionSettings(),
        )
        return calls(make_call())

    old_router = ScriptedRouter([change, says("old")])
    async with world.open(old_router, make_capability()) as agent:
        old = await world.run(agent, make_turn())
        new = await world.run(agent, make_turn(turn_id="t2", chat_id="c2"))

    assert isinstance(old, Completed)
    assert isinstance(new, Completed)
    assert (old.text, new.text) == ("old", "new")
    assert (len(old_router.requests), len(new_router.requests)) == (2, 1)
    assert new_router.requests[0].tools == ()


async def test_without_any_model_the_sender_is_told_what_to_run(world: World) -> None:
    """Issue "Embedded default": where no model can be had, the sentence says what to do."""
    router = ScriptedRouter([])
    router.routes = ()
    async with world.open(router) as agent:
        outcome = await world.run(agent, make_turn())

    assert outcome == Failed("no model is configured: run `fermix setup`", "no model is configured: run `fermix setup`")


async def test_broken_prompt_file_fails_the_turn_with_its_name(world: World) -> None:
    """House 8: wrong is said, with the file; the next turn after the repair works."""
    async with world.open(ScriptedRouter([says("fine")])) as agent:
        (world.home.bootstrap / "SOUL.md").write_bytes(b"\xff")
        broken = await world.run(agent, make_turn())
        (world.home.bootstrap / "SOUL.md").unlink()
        mended = await world.run(agent, make_turn(turn_id="t2"))

    assert isinstance(broken, Failed)
    assert broken.user_text.endswith("SOUL.md: is not UTF-8 text (byte 0)")
    assert isinstance(mended, Completed)


@covers("loop.cap.not-config")
def test_step_limit_cannot_be_set_in_the_configuration(tmp_path: Path) -> None:
    """Architecture, message-to-reply, step 6: a system-side knob, not a config.toml section."""
    home = Home(tmp_path)
    for section, key in (("agent", "max_steps"), ("agent", "max_iterations"), ("loop", "steps")):
        home.config.write_text(f"[fermix_core.{section}]\n{key} = 5\n", encoding="utf-8")
        with pytest.raises(ConfigError):
            load(home, {}, CLOSED)


async def test_a_turn_that_runs_again_asks_the_same_and_stores_it_once(world: World) -> None:
    """Issue 3, ledger: a turn without an effect runs again after a crash."""
    router = ScriptedRouter([says("one"), says("one"), says("two")])
    async with world.open(router) as agent:
        await world.run(agent, make_turn("count", ledger_id=1))
        outcome = await world.run(agent, make_turn("count", ledger_id=1))
        assert isinstance(outcome, Completed)
        await agent.commit(make_turn("count", ledger_id=1), outcome)
        await world.run(agent, make_turn("go on", ledger_id=2))

    assert router.requests[0].messages == router.requests[1].messages
    assert await shown(world) == [("user", "count"), ("assistant", "one"), ("user", "go on")]


@pytest.mark.parametrize("stored", ["nothing", "question", "all"])
async def test_a_delivered_answer_is_restored_as_far_as_it_is_missing(world: World, stored: str) -> None:
    turn = make_turn("count", ledger_id=1)
    router = ScriptedRouter([says("one")])
    async with world.open(router) as agent:
        if stored != "nothing":
            outcome = await world.run(agent, turn)
            assert isinstance(outcome, Completed)
            if stored == "all":
                await agent.commit(turn, outcome)
        await agent.restore(turn, "one", "fake/script-1")

    assert await shown(world) == [("user", "count"), ("assistant", "one")]


@pytest.mark.parametrize(("text", "stored"), [("look", "look\n[2 images]"), ("", "[2 images]")])
async def test_an_answer_that_an_earlier_start_delivered_keeps_its_question(
    world: World, tmp_path: Path, text: str, stored: str
) -> None:
    """DLV-07: killed before the history was written: the pictures are gone, but that there were some is told."""
    install, pictures = Install(tmp_path / "gateway.db"), (Attachment("image", "f1", ""), Attachment("image", "f2", ""))
    said = message(text, channel="chat", sender="1", attachments=pictures)
    async with install.ledger() as ledger:
        entry = await ledger.accept(said, Trust.OPERATOR)
        assert entry is not None
        (row,) = await ledger.outgoing(entry, ["two cats"], settles="answered", model="fake/m", answer="two cats")
        ledger.sent(row, "p1")
    async with world.open(ScriptedRouter([])) as agent, install.start(agent) as life:
        assert await life.settled(1) == [("m1", "completed")]
        kept = await world.conversations.history(said.key)

    assert kept == (UserMessage(stored), AssistantMessage("two cats"))


async def test_an_answer_is_not_restored_into_a_session_that_began_later(world: World) -> None:
    turn = make_turn("count", ledger_id=1)
    async with world.open(ScriptedRouter([says("one")])) as agent:
        await world.run(agent, turn)
        await world.conversations.flush()
        await world.conversations.clear(turn.key)
        await agent.restore(turn, "one", "fake/script-1")

    assert await shown(world) == []


async def test_history_that_fails_keeps_no_message_from_being_settled(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """protocol/methods.py, `turn.ended`: always the last event of a message; after a failed run as well."""
    async with (
        Database.open(tmp_path / "lost.db") as database,
        Conversations.open(database, world.clock, world.events) as closed,
    ):
        world.conversations = closed
    async with world.open(ScriptedRouter([])) as agent:
        failed = await world.run(agent, make_turn())
        assert isinstance(failed, Failed)
        await agent.abandon(make_turn(), failed)
        await agent.commit(make_turn(), Completed("fine", "fake/model", Usage(), steps=1))
        await agent.restore(make_turn(), "fine", "fake/model")

    assert failed.reason == "the database is closed"
    assert sum("turn t1 is not in the history" in record.message for record in caplog.records) == 3
