"""The memory over the daemon's socket: the same answers as without a daemon, and who may change anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermix.agent.memory.facts import Facts
from fermix.agent.model import UserMessage
from fermix.daemon import answers
from fermix.message import ConversationKey
from fermix.protocol.methods import Code
from tests.agent.memory.facts.world import OWNER, draft
from tests.daemon.house import opened

HERE = ConversationKey("cli", "here", "root")


async def test_memories_are_listed_changed_and_rolled_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as house:
        dial = await house.dial()
        empty = await dial.request("memory.list", {"archived": True})
        await _fill(house.facts)

        listed = (await dial.request("memory.list", {"archived": False}))["result"]
        shown = (await dial.request("memory.show", {"id": 1}))["result"]
        forgotten = (await dial.request("memory.forget", {"id": 1, "reason": "moved"}))["result"]
        restored = (await dial.request("memory.restore", {"id": 1, "change": 1}))["result"]
        history = (await dial.request("memory.history", {"id": 1}))["result"]
        revisions = (await dial.request("memory.revisions", {"name": "USER.md"}))["result"]
        text = (await dial.request("memory.revision", {"name": "USER.md", "revision": 2}))["result"]
        back = (await dial.request("memory.rollback", {"name": "USER.md", "revision": 2}))["result"]

        assert empty["result"] == {"memories": [], "more": False, "notes": []}
        assert [row["value"] for row in listed["memories"]] == ["Hue"]
        assert (shown["memory"]["shown_in"], len(shown["changes"])) == ("USER.md", 2)
        assert forgotten["memory"]["archive_reason"] == "moved"
        assert restored["memory"]["value"] == "Hanoi"
        assert [row["action"] for row in history["changes"]] == ["restore", "forget", "store", "store"]
        assert [row["revision"] for row in revisions["revisions"]] == [4, 3, 2, 1]
        assert text["text"].endswith("- home: Hue\n")
        assert back == {"changed": 1, "notes": []}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("memory.show", {"id": 7}, Code.REFUSED),
        ("memory.show", {"id": -1}, Code.REFUSED),
        ("memory.show", {"id": 2**80}, Code.REFUSED),
        ("memory.forget", {"id": 7}, Code.REFUSED),
        ("memory.restore", {"id": 7}, Code.REFUSED),
        ("memory.rollback", {"name": "USER.md", "revision": 7}, Code.REFUSED),
        ("memory.show", {"id": "1"}, Code.INVALID_PARAMS),
        ("memory.list", {}, Code.INVALID_PARAMS),
        ("memory.revision", {"name": "../../auth.json", "revision": 1}, None),
    ],
)
async def test_what_is_not_there_is_told(tmp_path: Path, method: str, params: dict, code: Code | None) -> None:
    async with opened(tmp_path) as house:
        dial = await house.dial()
        answer = await dial.request(method, params)

        assert "error" in answer
        assert code is None or answer["error"]["code"] == code


@pytest.mark.parametrize("method", ["memory.forget", "memory.restore", "memory.rollback"])
async def test_a_program_without_a_person_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(answers, "is_attended", lambda *_: False)
    async with opened(tmp_path) as house:
        await _fill(house.facts)
        before = await house.facts.active()
        dial = await house.dial()
        answer = await dial.request(method, {"id": 1})

        assert answer["error"]["code"] == Code.REFUSED
        assert await house.facts.active() == before


async def _fill(facts: Facts) -> None:
    for value in ("Hanoi", "Hue"):
        await facts.store(draft("identity", "home", value), OWNER)


async def test_memories_and_messages_are_searched_together(tmp_path: Path) -> None:
    async with opened(tmp_path) as house:
        dial = await house.dial()
        await _fill(house.facts)
        await house.conversations.append(HERE, UserMessage("the train to Hue leaves at nine"), sender="Jo", guest=True)
        await house.conversations.flush()

        found = (await dial.request("memory.search", {"query": "Hue", "limit": 5}))["result"]
        nothing = (await dial.request("memory.search", {"query": '" OR *'}))["result"]

        assert [row["value"] for row in found["memories"]] == ["Hue"]
        (said,) = found["messages"]
        assert (said["chat_id"], said["sender"], said["guest"], said["outside"]) == ("here", "Jo", True, False)
        assert said["snippet"] == "the train to Hue leaves at nine"
        assert (nothing["messages"], nothing["whole"]) == ([], True)
