"""A summary under SIGKILL, on the real file: the conversation is whole afterwards, with the summary or without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fermix.agent.memory import Checkpoint, Conversations
from fermix.agent.model import UserMessage
from fermix.events import Events
from fermix.home import Home
from fermix.message import ConversationKey
from fermix.store import Database
from tests.agent.memory.test_history import wire_problems
from tests.fakes.clock import ManualClock

KEY = ConversationKey("cli", "main", "root")
WRITES = 5  # the first talk, what was said while the summary is made, the summary, more talk, the next summary

CHILD = """
import asyncio, os, signal, sys
from fermix.agent.compaction.compactor import Compactor
from fermix.agent.compaction.settings import CompactionSettings
from fermix.agent.memory import Conversations
from fermix.agent.model import AssistantMessage, ToolCall, ToolMessage, UserMessage
from fermix.agent.providers.provider import ModelFacts
from fermix.events import Events
from fermix.home import Home
from fermix.message import ConversationKey
from fermix.store import Database
from pathlib import Path
from tests.fakes.clock import ManualClock
from tests.fakes.router import ScriptedRouter, says

KEY = ConversationKey("cli", "main", "root")
root, last, moment = sys.argv[1], int(sys.argv[2]), sys.argv[3]

async def main():
    clock, home = ManualClock(), Home(Path(root))
    events = Events(clock)
    async with Database.open(home.database) as database, Conversations.open(database, clock, events) as talk:
        run, writes = database.run, 0

        async def counted(fn, **more):
            nonlocal writes
            writes += 1
            if (writes, moment) == (last, "before"):
                os.kill(os.getpid(), signal.SIGKILL)
            if (writes, moment) == (last, "within"):
                def dying(connection):
                    fn(connection)
                    os.kill(os.getpid(), signal.SIGKILL)
                return await run(dying, **more)
            done = await run(fn, **more)
            if (writes, moment) == (last, "after"):
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        database.run = counted

        async def say(first, many):
            for number in range(first, first + many):
                call = ToolCall(f"abcd{number:05d}", "look", {})
                await talk.append(
                    KEY, UserMessage(f"q{number} " + "x" * 400), AssistantMessage("", (call,)),
                    ToolMessage(call.id, "look", "seen", True), AssistantMessage(f"a{number}"),
                )
            await talk.flush()

        async def meanwhile(request, on_delta):
            await say(8, 1)
            return says("They counted.")

        router = ScriptedRouter([meanwhile, says("They counted on.")], ModelFacts(8_000, 1_000, vision=None))
        compactor = Compactor(talk, events, clock, router, CompactionSettings())
        await say(0, 8)
        await compactor.asked(KEY)
        await talk.flush()
        await say(9, 3)
        await compactor.asked(KEY)
        await talk.flush()
        print(writes, flush=True)

asyncio.run(main())
"""


def child(root: Path, last: int, moment: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": os.getcwd()}  # noqa: PTH109 - as the child is to see it
    command = [sys.executable, "-c", CHILD, str(root), str(last), moment]
    return subprocess.run(command, env=environ, text=True, capture_output=True, timeout=30, check=False)


@pytest.mark.parametrize("moment", ["before", "within", "after"])
@pytest.mark.parametrize("last", range(1, WRITES + 1))
async def test_a_kill_between_two_writes_leaves_a_whole_conversation(tmp_path: Path, last: int, moment: str) -> None:
    """DB-10 and issue "Memory that lasts": nothing of what was written is lost, and a summary is there or is not."""
    home = Home(tmp_path)
    home.prepare()
    ended = child(tmp_path, last, moment)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    written = last if moment == "after" else last - 1

    clock = ManualClock()
    async with (
        Database.open(home.database) as database,
        Conversations.open(database, clock, Events(clock)) as conversations,
    ):
        history = await conversations.history(KEY)
        rows = await conversations.rows(KEY)
        stored = await database.read("SELECT content FROM messages WHERE role = 'user' ORDER BY id")
        ((total,),) = await database.read("SELECT COUNT(*) FROM messages WHERE kind = 'chat_message'")
        summaries = await database.read("SELECT content FROM messages WHERE kind = 'checkpoint_summary' ORDER BY id")

    asked = [str(text).split()[0] for (text,) in stored]
    assert asked == [f"q{number}" for number in range((0, 8, 9, 9, 12, 12)[written])]
    assert [text for (text,) in summaries] == ["They counted.", "They counted on."][: (0, 0, 0, 1, 1, 2)[written]]
    assert wire_problems(history) == []
    begun = [isinstance(row.item, Checkpoint) for row in rows]
    assert begun == [bool(summaries)] * bool(rows) + [False] * (len(rows) - 1)
    said = [row.item.text.split()[0] for row in rows if isinstance(row.item, UserMessage)]
    assert said == asked[len(asked) - len(said) :]
    assert not asked or said[-1] == asked[-1]
    covered = sum(row.item.covered for row in rows if isinstance(row.item, Checkpoint))
    assert covered + len(rows) - len(begun[:1]) * bool(summaries) == total  # each row once, here or in the summary
    assert bool(summaries) == (len(said) < len(asked))


def test_the_child_makes_as_many_writes_as_are_tried(tmp_path: Path) -> None:
    Home(tmp_path).prepare()
    ended = child(tmp_path, 0, "never")
    assert (ended.returncode, ended.stdout.strip()) == (0, str(WRITES)), ended.stderr
