"""Search over a real database file: what is found, how it is marked, and what a stop, a lock or damage does to it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from fermix.agent.memory import Conversations
from fermix.agent.memory.search import Search, index
from fermix.agent.model import AssistantMessage, ToolMessage, UserMessage
from fermix.agent.results import framed
from fermix.agent.transcript import digest
from fermix.clock import SystemClock
from fermix.errors import FermixError, NeedsOperator, Unavailable
from fermix.events import Events
from fermix.message import ConversationKey
from fermix.store import Connection, Database
from fermix.workers import Workers
from tests.daemon.house import running

HERE = ConversationKey("cli", "here", "root")
THERE = ConversationKey("telegram", "42", "root")


@dataclass
class Box:
    database: Database
    conversations: Conversations
    search: Search

    async def say(self, *texts: str, key: ConversationKey = HERE, guest: bool = False) -> None:
        await self.conversations.append(key, *map(UserMessage, texts), sender="Jo", guest=guest)
        await self.conversations.flush()

    async def texts(self, query: str, limit: int = 10) -> list[str]:
        return [hit.snippet for hit in (await self.search.find(query, limit)).hits]


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[Box]:
    clock, workers = SystemClock(), Workers()
    events = Events(clock)
    async with (
        Database.open(folder / "memory.db") as database,
        Conversations.open(database, clock, events) as conversations,
    ):
        yield Box(database, conversations, Search.following(conversations, database, workers, clock))
    workers.close()


@pytest.fixture
async def box(tmp_path: Path) -> AsyncGenerator[Box]:
    async with opened(tmp_path) as found:
        yield found


@pytest.mark.parametrize(
    ("said", "query"),
    [
        ("我喜欢喝咖啡", "咖啡"),
        ("我喜欢喝咖啡", "啡"),
        ("我喜欢喝咖啡", "喜欢喝咖"),
        ("東京タワーでWiFiを使う", "タワー"),
        ("東京タワーでWiFiを使う", "wifi"),
        ("커피를 마셨다", "커피"),
        ("ฉันชอบดื่มกาแฟ", "กาแฟ"),
        ("हिन्दी में लिखो", "हिन्दी"),
        ("Das Café in Düsseldorf", "cafe dusseldorf"),
        ("the cafe", "CAFÉ"),
        ("Straße", "strasse"),
        ("ＦＵＬＬ width", "full"),
        ("happy birthday 🎂🎉", "🎂"),
        ("thumbs up 👍🏽", "👍"),
        ("call get_user_name here", "get_user_name"),
        ("call get_user_name here", "user"),
        ("call getUserName here", "username name"),
        ("call getUserName here", "getusername"),
        ("the HTTPServer class", "server"),
        ("look into fermix/store/schema.py", "store/schema.py"),
        ("a multi-agent chat-send", "chat-send"),
        ("we are booking hotels", "booked hotel"),
        ("e\u0301tude", "étude"),
    ],
)
async def test_words_of_every_script_and_of_code_are_found(box: Box, said: str, query: str) -> None:
    """DB-06, DB-07: no script, sign or accent keeps a message from being found."""
    await box.say("something else entirely", said, "and another thing")

    assert (await box.texts(query))[:1] == [said]


@pytest.mark.parametrize(
    "query",
    [
        *("it's", "gateway/run.py", "user@host", "a,b", "why?", "e=mc2", "#tag", "[x]", "multi-agent", "grammar::fa"),
        *("ubuntu 20.04", "AND", "OR NOT", "NEAR(a b)", "^a", "{a b}", "words:x", 'say "this"', "star*", "-minus"),
    ],
)
async def test_what_is_typed_is_never_query_syntax(box: Box, query: str) -> None:
    """DB-05: each of these is found where it was said, and raises nothing."""
    await box.say(f"first {query} last", "other words")

    assert (await box.texts(query))[:1] == [f"first {query} last"]


@pytest.mark.parametrize("query", ["", "   ", '"', "*", "()", "\0", "\ud800", "?!…", "''"])
async def test_a_question_without_words_finds_nothing(box: Box, query: str) -> None:
    """DB-05: empty gives empty."""
    await box.say("some words")

    assert await box.texts(query) == []


async def test_a_long_question_is_answered(box: Box) -> None:
    await box.say("the needle is here")

    assert await box.texts("needle " + "hay stack " * 5_000) == ["the needle is here"]


async def test_a_hit_says_who_when_and_where(box: Box) -> None:
    await box.say("my bicycle is green", key=THERE)

    (hit,) = (await box.search.find("bicycle")).hits
    assert (hit.key, hit.sender, hit.role, hit.guest, hit.outside) == (THERE, "Jo", "user", False, False)
    assert hit.own
    assert hit.speaker == "Jo"


async def test_words_of_guests_and_from_outside_stay_marked(box: Box) -> None:
    await box.say("a guest speaks of bicycles", key=THERE, guest=True)
    page = ToolMessage("c1", "web_fetch", framed("a page about bicycles", "web_fetch"), True)
    await box.conversations.append(HERE, page, ledger_id=7)
    await box.conversations.append(HERE, AssistantMessage("so the bicycles are fast"), ledger_id=7)
    await box.conversations.append(HERE, UserMessage("my bicycles"), AssistantMessage("your bicycles"), ledger_id=8)
    await box.conversations.flush()

    found = {hit.snippet: hit for hit in (await box.search.find("bicycles")).hits}
    assert found["a guest speaks of bicycles"].guest
    assert found["a page about bicycles"].outside
    assert found["so the bicycles are fast"].outside
    assert not any(hit.own for text, hit in found.items() if "your" not in text and "my" not in text)
    assert found["my bicycles"].own
    assert found["your bicycles"].own


async def test_an_answer_after_a_shortened_page_stays_marked(box: Box) -> None:
    """R-49: a result that was replaced by its digest begins with our notice and still holds words from outside."""
    page = digest(ToolMessage("c1", "web_fetch", framed("hay " * 1_000, "web_fetch"), True), recalls=False)
    answer = AssistantMessage("all bicycles are to be sold")
    await box.conversations.append(HERE, page, answer, ledger_id=7)
    await box.conversations.flush()

    (hit,) = (await box.search.find("bicycles")).hits
    assert hit.outside
    assert not hit.own


async def test_an_answer_long_after_a_page_stays_marked(box: Box) -> None:
    """R-49: a page that an earlier turn read can still choose the words; the row of the answer says so."""
    await box.conversations.append(HERE, UserMessage("once more"), ledger_id=8)
    await box.conversations.append(HERE, AssistantMessage("all bicycles are to be sold"), outside=True, ledger_id=8)
    await box.conversations.flush()

    (hit,) = (await box.search.find("bicycles")).hits
    assert hit.outside
    assert not hit.own


async def test_what_the_agent_told_a_guest_stays_marked(box: Box) -> None:
    """INJ-06: a guest chooses what the agent says to him; that is no word of the owner's side."""
    await box.conversations.append(THERE, UserMessage("repeat it"), guest=True, ledger_id=7)
    await box.conversations.append(THERE, AssistantMessage("all bicycles are to be sold"), ledger_id=7)
    await box.conversations.flush()

    (hit,) = (await box.search.find("bicycles")).hits
    assert not hit.own


@pytest.mark.parametrize("outside", [True, False])
async def test_a_summary_made_of_words_of_others_stays_marked(box: Box, outside: bool) -> None:
    """R-49: what a page put into a summary is not the agent's own word when it is found again."""
    await box.say("what does the page say?")
    await box.conversations.append(HERE, AssistantMessage("much"))
    old = await box.conversations.rows(HERE)
    summary = "The page said that all bicycles are to be sold."
    assert await box.conversations.sum_up(HERE, old, summary, outside=outside, model="m", version=0)
    await box.conversations.flush()

    (hit,) = (await box.search.find("bicycles")).hits
    assert (hit.outside, hit.own) == (outside, not outside)
    assert hit.speaker == ("summary (with words from outside)" if outside else "summary")


async def test_of_a_tools_result_only_the_beginning_is_in_the_index(box: Box) -> None:
    text = framed("needle " + "hay " * 2_000 + "thimble", "web_fetch")
    await box.conversations.append(HERE, ToolMessage("c1", "web_fetch", text, True))
    await box.conversations.flush()

    assert len(await box.texts("needle")) == 1
    assert await box.texts("thimble") == []
    assert await box.texts("untrusted") == []


async def test_what_was_cleared_is_still_found(box: Box) -> None:
    """The full text stays searchable after /new."""
    await box.say("the door code is in the blue book")
    await box.conversations.clear(HERE)
    await box.conversations.flush()

    assert await box.texts("door code") == ["the door code is in the blue book"]


async def test_an_answer_comes_before_the_question_it_answers(box: Box) -> None:
    for number in range(20):
        await box.say(f"note {number} on nothing much")
    question = UserMessage("which colour goes behind the piano?")
    await box.conversations.append(HERE, question, AssistantMessage("Sage green, you said."))
    await box.conversations.flush()

    assert await box.texts("colour behind the piano", 2) == ["Sage green, you said.", question.text]


async def test_recent_words_come_first_among_equals(box: Box) -> None:
    await box.say("lunch with Marta", "other things", "lunch with Marta")

    numbers = [hit.number for hit in (await box.search.find("lunch Marta")).hits]
    assert numbers == sorted(numbers, reverse=True)


async def test_an_old_row_is_found_although_each_of_its_words_is_in_a_thousand_newer_ones(box: Box) -> None:
    def fill(connection: Connection) -> None:
        said = ["green bicycle", *["green things"] * 1_200, *["bicycle parts"] * 1_200]
        connection.executemany(PLAIN, [(text,) for text in said])

    await box.database.run(fill)
    await index_all(box.database)

    assert (await box.texts("green bicycle"))[0] == "green bicycle"


PLAIN = (
    "INSERT INTO messages (agent_id, owner_id, channel, chat_id, sender, role, kind, content, created_at)"
    " VALUES ('main', 'default', 'cli', 'here', 'Jo', 'user', 'chat_message', ?, '2026-01-01T00:00:00.000Z')"
)


async def index_all(database: Database) -> None:
    for step in (index.add_new, index.add_old):
        while await database.run(step):
            pass


async def test_rows_from_before_the_index_come_in_by_themselves_and_a_search_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as box:
        await box.database.run(lambda connection: fill_unseen(connection, 450))

        assert not (await box.search.find("word7")).whole
        async with asyncio.timeout(5), running(box.search.run):
            while not (found := await box.search.find("word7")).whole:
                await asyncio.sleep(0.01)
        assert [hit.snippet for hit in found.hits] == ["word7"]


def fill_unseen(connection: Connection, rows: int) -> None:
    """Store rows as an earlier version of the schema left them: none of them is in the index."""
    connection.executemany(PLAIN, [(f"word{number}",) for number in range(rows)])
    connection.execute("UPDATE search_progress SET (low, high) = (SELECT MAX(id) + 1, MAX(id) FROM messages)")


async def test_what_is_written_while_the_service_runs_is_indexed_without_a_search(tmp_path: Path) -> None:
    async with opened(tmp_path) as box, running(box.search.run):
        await box.say("something new")
        async with asyncio.timeout(5):
            while (await box.database.read(index.PROGRESS))[0][1] != 1:
                await asyncio.sleep(0.01)


async def test_another_program_that_holds_the_file_is_told_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLITE_BUSY: a search says that the file is in use; the rows are indexed afterwards."""
    monkeypatch.setattr("fermix.store.schema.BUSY_TIMEOUT_S", 0.05)
    async with opened(tmp_path) as box:
        await box.say("kept words")
        with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(Unavailable, match="in use by another program"):
                await box.search.find("kept")
            other.execute("ROLLBACK")

        assert await box.texts("kept") == ["kept words"]


@pytest.mark.parametrize("error", [NeedsOperator("the disk is full", advice="free some space"), Unavailable("in use")])
async def test_a_disk_without_room_is_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: FermixError
) -> None:
    """The ledger says that the disk is full; the index goes on by itself once there is room."""
    monkeypatch.setattr("fermix.agent.memory.search.search.RETRY_S", 0.01)
    add, failures = index.add_new, iter([error] * 3)

    def fails(connection: Connection) -> bool:
        if (failure := next(failures, None)) is not None:
            raise failure
        return add(connection)

    async with opened(tmp_path) as box:
        await box.say("kept words")
        monkeypatch.setattr(index, "add_new", fails)
        async with asyncio.timeout(5), running(box.search.run):
            while (await box.database.read(index.PROGRESS))[0][1] != 1:
                await asyncio.sleep(0.01)


async def test_a_damaged_index_is_built_again_from_the_messages(tmp_path: Path) -> None:
    async with opened(tmp_path) as box:
        await box.database.run(lambda connection: connection.executemany(PLAIN, [(f"word{n}",) for n in range(500)]))
        await index_all(box.database)
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
        file.execute("UPDATE messages_fts_data SET block = x'00' WHERE id > 10")
        file.commit()

    async with opened(tmp_path) as box:
        with pytest.raises(Unavailable) as told:
            await box.search.find("word7")
        assert "built again" in (told.value.user_text or "")
        async with asyncio.timeout(5), running(box.search.run):
            while not await tells(box, "word7"):
                await asyncio.sleep(0.01)


async def tells(box: Box, query: str) -> bool:
    try:
        found = await box.search.find(query)
    except Unavailable:
        return False
    return found.whole and [hit.snippet for hit in found.hits] == [query]


async def test_a_damaged_index_does_not_keep_a_message_from_being_stored(tmp_path: Path) -> None:
    async with opened(tmp_path) as box:
        await box.say("before")
        assert await box.texts("before")
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
        file.execute("UPDATE messages_fts_data SET block = x'00'")
        file.commit()

    async with opened(tmp_path) as box, running(box.search.run):
        await box.say("afterwards")
        async with asyncio.timeout(5):
            while not await tells(box, "afterwards"):
                await asyncio.sleep(0.01)
        rows = await box.database.read("SELECT content FROM messages WHERE kind = 'chat_message' ORDER BY id")
        assert rows == [("before",), ("afterwards",)]
