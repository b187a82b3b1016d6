"""Conversations as the runner, the commands and the socket use them, on a real database file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fermix.agent.markers import STOPPED
from fermix.agent.memory import Conversations, ConversationSummary, Entry, Note
from fermix.agent.memory import conversations as module
from fermix.agent.model import AssistantMessage, Image, Reasoning, ToolCall, ToolMessage, UserMessage
from fermix.errors import NeedsOperator
from fermix.events import ConversationChanged, Events
from fermix.message import ConversationKey
from fermix.store import Database
from tests.agent.memory.items import items
from tests.fakes.clock import START, ManualClock
from tests.requirements import covers

KEY = ConversationKey("cli", "main", "root")
OTHER = ConversationKey("cli", "other", "root")
CALL = ToolCall("aaaaaaaa1", "shell", {"command": "ls"})
TURN = (
    UserMessage("what is here?"),
    AssistantMessage("", (CALL,), Reasoning("openai", "m", ({"id": "rs_1"},))),
    ToolMessage(CALL.id, CALL.name, "a b c", True),
    AssistantMessage("three files"),
)


class World:
    """A database file that can be opened again, as after a restart."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.events = Events(self.clock)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Conversations]:
        async with (
            asyncio.timeout(30),
            Database.open(self.path) as database,
            Conversations.open(database, self.clock, self.events) as conversations,
        ):
            yield conversations

    def rows(self, query: str) -> list[tuple]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "memory.db")


@covers("history.restored")
async def test_a_restart_finds_the_conversation_again(world: World):
    async with world.open() as conversations:
        await conversations.append(KEY, TURN[0], sender="owner")
        await conversations.append(KEY, *TURN[1:], sender="main", model="openai/gpt-5.5")
        before = await conversations.history(KEY)
        lines = await conversations.entries(KEY, 500)

    async with world.open() as conversations:
        assert await conversations.history(KEY) == before == TURN
        assert await conversations.entries(KEY, 500) == lines
        assert lines[-1] == Entry("assistant", "three files", START, model="openai/gpt-5.5")
        assert await conversations.history(OTHER) == ()


async def test_the_rows_are_as_the_reference_has_them(world: World):
    """Reference 3, section 9.2: the columns of `messages`, a guest's words marked in the metadata."""
    async with world.open() as conversations:
        await conversations.append(ConversationKey("telegram", "5", "9"), UserMessage("hi"), sender="77", guest=True)

    assert world.rows(
        "SELECT agent_id, owner_id, channel, chat_id, thread_scope, session, sender, role, kind, content,"
        " metadata_json, created_at FROM messages"
    ) == [
        (
            *("main", "default", "telegram", "5", "9", 0),
            *("77", "user", "chat_message", "hi", '{"guest": true}', "2026-01-01T00:00:00.000Z"),
        )
    ]


@covers("history.hot", "hot-path.no-disk-wait")
async def test_a_turn_never_waits_for_the_disk(world: World):
    """Once in use, a conversation is read and written while the disk does nothing at all."""
    async with (
        Database.open(world.path) as database,
        Conversations.open(database, world.clock, world.events) as conversations,
    ):
        await conversations.history(KEY)
        async with held(world.path):
            for number in range(20):
                await asyncio.wait_for(conversations.append(KEY, UserMessage(f"q{number}")), 1)
                await asyncio.wait_for(conversations.append(KEY, AssistantMessage(f"a{number}")), 1)
            history = await asyncio.wait_for(conversations.history(KEY), 1)

    assert len(history) == 40
    assert len(world.rows("SELECT 1 FROM messages")) == 40


@asynccontextmanager
async def held(path: Path) -> AsyncGenerator[None]:
    """Another program holds the file: every write waits behind it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def test_rows_reach_the_disk_in_the_order_they_were_added(world: World):
    """Ours, against reference 3 section 12: independent write tasks could swap two quick rows."""
    async with world.open() as conversations:
        for number in range(500):
            await conversations.append(KEY if number % 2 else OTHER, UserMessage(str(number)))

    assert [int(content) for (content,) in world.rows("SELECT content FROM messages ORDER BY id")] == list(range(500))


async def test_pictures_are_never_stored_and_blank_rows_neither(world: World):
    async with world.open() as conversations:
        picture = Image("image/png", b"\x89PNG" * 1000)
        await conversations.append(KEY, UserMessage("", (picture,)), AssistantMessage(" "), Note(""))
        await conversations.append(KEY, AssistantMessage("nice"))

        assert await conversations.history(KEY) == (UserMessage("[image]"), AssistantMessage("nice"))
    assert world.rows("SELECT content FROM messages") == [("[image]",), ("nice",)]


async def test_clear_begins_anew_here_and_after_a_restart(world: World):
    async with world.open() as conversations:
        await conversations.append(KEY, *TURN)
        await conversations.append(OTHER, *TURN)
        with world.events.subscribe(10) as watching:
            await conversations.clear(KEY)
        assert [seen.event for seen in watching.drain()] == [ConversationChanged(KEY)]
        assert await conversations.history(KEY) == ()
        assert await conversations.history(OTHER) == TURN

    async with world.open() as conversations:
        assert await conversations.history(KEY) == ()
        assert await conversations.version(KEY) == 1
        assert await conversations.append(KEY, UserMessage("anew"), AssistantMessage("yes"))

    async with world.open() as conversations:
        assert await conversations.history(KEY) == (UserMessage("anew"), AssistantMessage("yes"))
        assert await conversations.history(OTHER) == TURN
    assert len(world.rows("SELECT 1 FROM messages WHERE chat_id = 'main' AND kind = 'chat_message'")) == 6


async def test_a_late_write_after_clear_is_dropped(world: World):
    """Reference 3, section 12, kind 54: a cleared chat must not come back by a write that was under way."""
    async with world.open() as conversations:
        version = await conversations.version(KEY)
        assert await conversations.append(KEY, TURN[0], version=version)
        await conversations.clear(KEY)

        assert not await conversations.append(KEY, *TURN[1:], version=version)
        assert await conversations.history(KEY) == ()
    async with world.open() as conversations:
        assert await conversations.history(KEY) == ()


async def test_close_dangling_ends_only_a_turn_without_answer(world: World):
    async with world.open() as conversations:
        await conversations.close_dangling(KEY, "[stopped]")
        assert await conversations.history(KEY) == ()

        await conversations.append(KEY, UserMessage("a"), AssistantMessage("b"))
        await conversations.close_dangling(KEY, "[stopped]")
        assert await conversations.history(KEY) == (UserMessage("a"), AssistantMessage("b"))

        await conversations.append(KEY, UserMessage("c"))
        await conversations.close_dangling(KEY, "[stopped]")
        await conversations.close_dangling(KEY, "[stopped]")
        assert (await conversations.history(KEY))[2:] == (UserMessage("c"), AssistantMessage("[stopped]"))
        assert [entry.role for entry in await conversations.entries(KEY, 2)] == ["user", "note"]


async def test_a_turn_that_died_with_the_process_is_closed_by_a_marker(world: World):
    """CTX-02: no question of a dead turn is answered later, and a screen shows what happened, once."""
    async with world.open() as conversations:
        await conversations.append(KEY, *TURN, UserMessage("and now?"), AssistantMessage("", (CALL,)))

    for _ in range(2):
        async with world.open() as conversations:
            history = await conversations.history(KEY)
            assert history[-1] == AssistantMessage(module.DIED)
            assert [entry.text for entry in await conversations.entries(KEY, 500)].count(module.DIED) == 1


async def test_a_running_turn_is_not_taken_for_a_dead_one(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST_CHARACTERS", 0)
    async with world.open() as conversations:
        await conversations.append(KEY, UserMessage("a"))
        await conversations.flush()
        await conversations.history(OTHER)  # pushes the first out of memory

        assert await conversations.entries(KEY, 500) == (Entry("user", "a", START),)
        assert (await conversations.history(KEY))[-1] == AssistantMessage(STOPPED)


async def test_two_first_touches_at_once_load_one_conversation(world: World):
    async with world.open() as conversations:
        await conversations.append(KEY, *TURN)
    async with world.open() as conversations:
        async with asyncio.TaskGroup() as group:
            touches = [
                group.create_task(conversations.history(KEY)),
                group.create_task(conversations.append(KEY, UserMessage("x"), AssistantMessage("y"))),
                group.create_task(conversations.history(KEY)),
            ]

        assert touches[0].result() == TURN
        assert await conversations.history(KEY) == (*TURN, UserMessage("x"), AssistantMessage("y"))


async def test_a_restart_reads_at_most_a_thousand_rows(world: World):
    """Reference 3, section 9.1: a cache miss reads at most 1000 rows."""
    async with world.open() as conversations:
        for number in range(1_100):
            await conversations.append(KEY, UserMessage(f"q{number}"), AssistantMessage(f"a{number}"))
        kept = len(await conversations.history(KEY))
        assert module.MOST_ROWS <= kept < 2 * module.MOST_ROWS

    async with world.open() as conversations:
        history = await conversations.history(KEY)
        assert (len(history), history[0], history[-1]) == (1_000, UserMessage("q600"), AssistantMessage("a1099"))


async def test_a_thousand_conversations_stay_within_bounded_memory(world: World, monkeypatch: pytest.MonkeyPatch):
    """QUE-09: idle conversations are dropped from memory, and found again on disk."""
    monkeypatch.setattr(module, "MOST_CHARACTERS", 200_000)
    keys = [ConversationKey("telegram", str(number), "root") for number in range(1_000)]
    async with world.open() as conversations:
        for key in keys:
            await conversations.append(key, UserMessage(f"I am {key.chat_id} " + "x" * 1_000), AssistantMessage("hi"))
        await conversations.flush()
        await conversations.history(OTHER)
        held = sum(hot.characters for hot in conversations._hot.values())

        assert held == conversations._characters <= 200_000
        assert len(conversations._hot) < 100
        assert (await conversations.history(keys[0]))[0].text.startswith("I am 0 ")
        assert (await conversations.history(keys[-1]))[0].text.startswith("I am 999 ")


async def test_what_is_not_on_disk_is_never_dropped_from_memory(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "MOST_CHARACTERS", 0)
    async with world.open() as conversations:
        await conversations.history(OTHER)
        async with held(world.path):
            await conversations.append(KEY, *TURN)
            await conversations.history(OTHER)

            assert await conversations.history(KEY) == TURN


async def test_broken_is_not_empty(world: World):
    """MEM-06: a store that cannot be read must not look like a conversation that never was."""
    async with world.open() as conversations:
        await conversations.append(KEY, *TURN)
    async with (
        Database.open(world.path) as database,
        Conversations.open(database, world.clock, world.events) as conversations,
    ):
        spoil(world.path)
        with pytest.raises(NeedsOperator, match=r"memory\.db is damaged"):
            await conversations.history(KEY)


def spoil(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"no longer a database")


async def test_a_row_that_cannot_be_read_costs_only_itself(world: World, caplog: pytest.LogCaptureFixture):
    async with world.open() as conversations:
        await conversations.append(
            KEY, UserMessage("a"), AssistantMessage("b"), UserMessage("c"), AssistantMessage("d")
        )
    with closing(sqlite3.connect(world.path)) as connection, connection:
        connection.execute("UPDATE messages SET metadata_json = '{' WHERE content = 'b'")

    async with world.open() as conversations:
        history = await conversations.history(KEY)

        assert history == (UserMessage("a"), AssistantMessage(STOPPED), UserMessage("c"), AssistantMessage("d"))
        assert "history row 2 left out" in caplog.text


async def test_listing_shows_the_newest_first_with_title_and_count(world: World):
    async with world.open() as conversations:
        await conversations.append(
            KEY, UserMessage("first   words " + "x" * 100 + "\n\n[attached file a]\nb"), *TURN[1:]
        )
        world.clock.advance(60)
        await conversations.append(OTHER, *TURN)
        await conversations.append(ConversationKey("telegram", "1", "root"), *TURN)
        await conversations.append(ConversationKey("cli", "cleared", "root"), *TURN)
        await conversations.clear(ConversationKey("cli", "cleared", "root"))

        assert await conversations.listing("cli") == (
            ConversationSummary(OTHER, "what is here?", START + timedelta(seconds=60), 2),
            ConversationSummary(KEY, ("first words " + "x" * 100)[:80], START, 2),
        )
        assert await conversations.listing("signal") == ()


async def test_listing_waits_for_what_is_on_its_way_to_disk(world: World):
    async with Database.open(world.path) as database, Conversations.open(database, world.clock, world.events) as seen:
        await seen.history(KEY)
        async with asyncio.TaskGroup() as group, held(world.path):
            await seen.append(KEY, *TURN)
            listing = group.create_task(seen.listing("cli"))
            for _ in range(3):  # would the listing read now, it would be served before these
                await database.read("SELECT 1")
            assert not listing.done()

        assert [summary.key for summary in listing.result()] == [KEY]


async def test_entries_are_the_last_ones(world: World):
    async with world.open() as conversations:
        await conversations.append(KEY, *TURN)

        assert [entry.role for entry in await conversations.entries(KEY, 2)] == ["tool", "assistant"]
        assert len(await conversations.entries(KEY, 500)) == 3
        assert await conversations.entries(KEY, 0) == ()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=st.lists(items, max_size=8))
def test_memory_and_disk_always_agree(tmp_path_factory: pytest.TempPathFactory, stored: list):
    """PRV-09: whatever a turn tries to store, a restart replays the same history."""

    async def both() -> None:
        world = World(tmp_path_factory.mktemp("agree") / "memory.db")
        async with world.open() as conversations:
            await conversations.append(KEY, *stored, Note("closed"))
            before = await conversations.history(KEY)
        async with world.open() as conversations:
            assert await conversations.history(KEY) == before

    asyncio.run(both())


ids = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6)
keys = st.builds(ConversationKey, st.sampled_from(["cli", "telegram"]), ids, ids)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(found=st.lists(keys, min_size=1, max_size=8, unique=True))
def test_no_two_keys_share_a_history(tmp_path_factory: pytest.TempPathFactory, found: list[ConversationKey]):
    """QUE-05, R-17: the encoding of a key is injective, whatever its characters."""
    found = [*found, ConversationKey("telegram", "a_b", "root"), ConversationKey("telegram", "a:b", "root")]

    async def each_its_own() -> None:
        world = World(tmp_path_factory.mktemp("keys") / "memory.db")
        async with world.open() as conversations:
            for number, key in enumerate(dict.fromkeys(found)):
                await conversations.append(key, UserMessage(str(number)), AssistantMessage("yes"))
        async with world.open() as conversations:
            for number, key in enumerate(dict.fromkeys(found)):
                assert (await conversations.history(key))[0] == UserMessage(str(number))

    asyncio.run(each_its_own())


async def test_a_turn_that_runs_again_stores_its_question_once(world: World):
    """Issue 3, ledger: the user row carries the ledger's id, so that a re-run stores nothing twice."""
    async with world.open() as conversations:
        await conversations.append(KEY, *TURN, ledger_id=6)
        await conversations.append(KEY, UserMessage("and now?"), ledger_id=7)

    async with world.open() as conversations:
        conversations.expect([7])
        assert await conversations.history(KEY, before=7) == TURN
        await conversations.append(KEY, UserMessage("and now?"), ledger_id=7)
        await conversations.append(KEY, AssistantMessage("four"), ledger_id=7)
        await conversations.append(KEY, AssistantMessage("four"), ledger_id=7)

    assert world.rows("SELECT content, ledger_id FROM messages WHERE ledger_id = 7") == [("and now?", 7), ("four", 7)]
    async with world.open() as conversations:
        assert await conversations.history(KEY) == (*TURN, UserMessage("and now?"), AssistantMessage("four"))


async def test_a_question_that_nobody_takes_up_again_is_closed(world: World):
    async with world.open() as conversations:
        await conversations.append(KEY, UserMessage("kill me"), ledger_id=7)

    async with world.open() as conversations:
        conversations.expect([8])
        lines = await conversations.entries(KEY, 10)

    assert [line.text for line in lines] == ["kill me", module.DIED]


async def test_it_is_known_where_a_message_stands_on_disk(world: World):
    async with world.open() as conversations:
        await conversations.append(KEY, UserMessage("one"), ledger_id=7)
        await conversations.clear(KEY)
        await conversations.flush()

        assert await conversations.session_of(7) == 0
        assert await conversations.session_of(8) is None


async def test_why_a_turn_failed_stays_for_the_screen_and_not_for_the_model(world: World):
    """What was read live is read again after a restart; the wire keeps the short marker."""
    async with world.open() as conversations:
        await conversations.append(KEY, UserMessage("a"))
        await conversations.close_dangling(KEY, "[failed]", "ollama does not run: start it.")
    async with world.open() as conversations:
        assert [entry.text for entry in await conversations.entries(KEY, 9)] == ["a", "ollama does not run: start it."]
        assert await conversations.history(KEY) == (UserMessage("a"), AssistantMessage("[failed]"))


@pytest.mark.parametrize("query", ["_LIST", "_LOAD"])
async def test_no_query_goes_through_all_that_was_ever_said(tmp_path: Path, query: str):
    """Issue "Memory that lasts", numbers: with a million messages a list and a conversation are there at once."""
    conversation = ("main", "default", *KEY)
    parameters = ("main", "default", "cli", 200) if query == "_LIST" else (*conversation, *conversation, 1_000)
    async with Database.open(tmp_path / "memory.db") as database:
        plan = await database.read("EXPLAIN QUERY PLAN " + getattr(module, query), parameters)

    looked_at = [str(row[3]) for row in plan]
    assert any("messages" in line for line in looked_at)
    assert [line for line in looked_at if line.startswith(("SCAN m", "USE TEMP B-TREE FOR GROUP"))] == []


async def test_a_list_knows_threads_cleared_conversations_and_what_is_no_line(world: World):
    """One summary for each conversation with lines of its current session; notes, calls and results are none."""
    async with world.open() as conversations:
        keys = [ConversationKey("cli", chat, thread) for chat in ("a", "b") for thread in ("root", "t1")]
        for key in keys:
            await conversations.append(key, UserMessage(f"hello {key.chat_id} {key.thread}"))
        await conversations.clear(keys[1])
        await conversations.append(keys[2], Note("only a note"), AssistantMessage("answer"))
        found = await conversations.listing("cli")

    assert [(line.key, line.title, line.messages) for line in found] == [
        (keys[2], "hello b root", 2),
        (keys[3], "hello b t1", 1),
        (keys[0], "hello a root", 1),
    ]
