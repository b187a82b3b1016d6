"""`fermix memory` without a daemon, over the real file: what it tells, what it brings back, exit codes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fermix.agent.memory import Conversations
from fermix.agent.memory.facts import Facts
from fermix.agent.model import UserMessage
from fermix.cli.main import main
from fermix.events import Events
from fermix.home import hold_lock
from fermix.message import ConversationKey
from fermix.store import Database
from tests.agent.memory.facts.world import HERE, OWNER, World, draft


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)
    monkeypatch.setenv("FERMIX_HOME", str(world.home.root))
    asyncio.run(_fill(world))
    return world


async def _fill(world: World) -> None:
    async with world.open() as facts:
        await _store(facts, "identity", "home", "Hanoi")
        await _store(facts, "identity", "home", "Hue")
        await _store(facts, "directive", "tone", "be \u2800brief")
        await facts.store(draft("context", "here", "x", HERE), OWNER)
        await facts.forget(2, OWNER, "changed my mind")


async def _store(facts: Facts, category: str, key: str, value: str) -> None:
    await facts.store(draft(category, key, value), OWNER)


def told(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["memory", *argv]) == 0
    return capsys.readouterr().out


def answered(capsys: pytest.CaptureFixture[str], *argv: str) -> dict:
    return json.loads(told(capsys, *argv, "--json"))


def test_what_is_remembered_is_listed(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    listed = "#1 [identity] home: Hue\n#3 [context, conversation only] here: x\n"
    assert told(capsys) == told(capsys, "list") == listed
    assert "#2 [directive] tone: be brief (forgotten 2026-01-01 00:00)" in told(capsys, "list", "--archived")
    assert [row["id"] for row in answered(capsys, "list", "--archived")["memories"]] == [1, 2, 3]


def test_a_restore_that_was_cut_off_is_finished_before_anything_is_opened(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between the two rows of moves the home holds no database: an answer from it would be that nothing is known."""
    listed, home = told(capsys), world.home
    coming, kept = home.root / ".restore-1", home.replaced / "000001-then"
    coming.mkdir()
    kept.mkdir(parents=True)
    home.database.rename(coming / home.database.name)
    note = {"coming": coming.name, "kept": f"replaced/{kept.name}", "emptied": True}
    home.restoring.write_text(json.dumps(note), encoding="utf-8")

    assert told(capsys) == listed
    assert not home.restoring.exists()
    assert not any(path.name.startswith(home.database.name) for path in kept.iterdir())


def test_one_is_shown_with_its_source_and_its_changes(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    shown = told(capsys, "show", "2")

    assert "by: u1 (operator)" in shown
    assert "from: chat telegram" in shown
    assert "forgotten because: changed my mind" in shown
    assert "change 5: #2 tone forgotten 2026-01-01 00:00 by u1, chat telegram (changed my mind): archived" in shown
    row = answered(capsys, "show", "1")
    assert (row["memory"]["message_id"], row["memory"]["turn"]) == ("m7", "t1")
    assert [change["value"] for change in row["changes"]] == ["Hue", "Hanoi"]


def test_forgotten_and_restored(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "forget", "1", "I", "moved").startswith("Forgotten: #1 [identity] home: Hue (forgotten ")
    assert "(I moved)" in told(capsys, "history", "1")
    assert "Hue" not in world.text()
    assert told(capsys, "restore", "1") == "Restored: #1 [identity] home: Hue\n"
    assert answered(capsys, "restore", "1", "1")["memory"]["value"] == "Hanoi"
    assert world.text().endswith("- home: Hanoi\n")
    assert "by the owner at a terminal" in told(capsys, "history").splitlines()[0]


def test_files_have_a_history_and_go_back(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, "history", "USER.md") == (
        "revision 2: 2026-01-01 00:00, made from the memories, 45 bytes\n"
        "revision 1: 2026-01-01 00:00, made from the memories, 47 bytes\n"
    )
    assert told(capsys, "history", "USER.md", "1").endswith("- home: Hanoi\n")
    assert told(capsys, "restore", "USER.md", "1") == (
        "USER.md says again what it said in revision 1; memories changed: 1.\n"
    )
    assert told(capsys, "list").startswith("#1 [identity] home: Hanoi\n")
    world.file().write_text("mine", encoding="utf-8")
    assert "written by hand" in told(capsys, "history", "USER.md").splitlines()[0]
    assert "USER.md was written by hand; that text is kept as revision 4" in told(capsys, "list").splitlines()[-1]
    assert answered(capsys, "list")["notes"][0].startswith("USER.md was written by hand")
    told(capsys, "forget", "1")
    assert answered(capsys, "list")["notes"] == []


def test_export_is_everything_as_json(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(told(capsys, "export"))

    assert [row["key"] for row in found["memories"]] == ["home", "tone", "here"]
    assert [change["id"] for change in found["changes"]] == [5, 4, 3, 2, 1]


def test_pages_are_put_together(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fermix.daemon.memory_answers.PAGE", 2)

    assert len(answered(capsys, "export")["changes"]) == 5
    assert len(answered(capsys, "list", "--archived")["memories"]) == 3
    assert len(answered(capsys, "history", "USER.md")["revisions"]) == 2


@pytest.mark.parametrize(
    ("argv", "code", "sentence"),
    [
        (["shoe", "1"], 2, "'shoe 1' means nothing here"),
        (["restore"], 2, "'restore' means nothing here; say `fermix memory restore ID [CHANGE]` or `fermix memory "),
        (["restore", "USER.md"], 2, "or `fermix memory restore USER.md|MEMORY.md REVISION`\n"),
        (["search"], 2, "'search' means nothing here; say `fermix memory search QUERY [--limit N]`\n"),
        (["export", "it"], 2, "say `fermix memory export`\n"),
        (["history", "1", "2", "3"], 2, "means nothing here"),
        (["show", "one"], 2, "'one' is no number"),
        (["forget", "9" * 19], 2, "is no number"),
        (["show", "99"], 1, "there is no memory with the id 99; `fermix memory list --archived` names them all"),
        (["history", "99"], 1, "there is no memory with the id 99; `fermix memory list --archived` names them all"),
        (["history", "0"], 1, "there is no memory with the id 0"),
        (["forget", "99"], 1, "there is no memory with the id 99"),
        (["restore", "1", "99"], 1, "memory 1 has no change 99; `fermix memory history 1` lists them"),
        (["restore", "USER.md", "99"], 1, "USER.md has no revision 99; `fermix memory history USER.md` lists them"),
        (["restore", "3"], 1, "was stored once and never changed"),
    ],
)
def test_wrong_use_and_what_is_not_there(
    world: World, capsys: pytest.CaptureFixture[str], argv: list[str], code: int, sentence: str
) -> None:
    assert main(["memory", *argv]) == code
    out = capsys.readouterr()
    assert (out.out, sentence in out.err) == ("", True), out.err


def test_failures_are_json_too(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "show", "99", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["status"] == "error"


def test_nothing_hidden_reaches_the_terminal(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """INJ-07: a row that was written by another hand."""
    world.execute("UPDATE memories SET value = ? WHERE id = 1", "a\x1b[2Jb\u202ec")

    assert told(capsys, "list").startswith("#1 [identity] home: a⟨U+001B⟩[2Jb⟨U+202E⟩c\n")


def test_an_empty_home_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("FERMIX_HOME", str(tmp_path / "new"))

    assert told(capsys, "list") == "Nothing is remembered yet.\n"
    assert told(capsys, "history") == "Nothing was ever changed.\n"
    assert told(capsys, "history", "MEMORY.md") == "MEMORY.md was never written.\n"


def test_a_home_that_another_holds_is_told(world: World, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setattr("fermix.cli.offline.WAIT_S", 0.0)
    with hold_lock(world.home):
        assert main(["memory", "list"]) == 1
    assert "a daemon already runs" in capsys.readouterr().err


def test_what_was_said_is_searched_with_what_is_remembered(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(_say(world, "the train to Hue leaves at nine", "a \u202ebackward Hue"))

    found = told(capsys, "search", "hue", "train")
    assert found.splitlines()[:2] == [
        "#1 [identity] home: Hue",
        "2026-01-01 00:00 telegram 42, Jo, a guest's conversation: the train to Hue leaves at nine",
    ]
    assert "⟨U+202E⟩backward" in found
    answer = answered(capsys, "search", "hue", "--limit", "1")
    assert (len(answer["memories"]), len(answer["messages"]), answer["whole"]) == (1, 1, True)
    assert told(capsys, "search", "zeppelin") == "Nothing holds any of these words.\n"


@pytest.mark.parametrize("argv", [["search"], ["search", "x", "--limit", "0"], ["search", "x", "--limit", "51"]])
def test_a_search_for_nothing_or_too_much_is_wrong_use(world: World, argv: list[str]) -> None:
    assert main(["memory", *argv]) == 2


async def _say(world: World, *texts: str) -> None:
    clock = world.clock
    async with (
        Database.open(world.home.database) as database,
        Conversations.open(database, clock, Events(clock)) as conversations,
    ):
        key = ConversationKey("telegram", "42", "root")
        await conversations.append(key, *map(UserMessage, texts), sender="Jo", guest=True)
        await conversations.flush()
