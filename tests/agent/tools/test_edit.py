"""file_write and file_edit on a real folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fermix.agent.model import ToolResult
from fermix.agent.registry import CapabilityRegistry
from fermix.agent.sandbox.place import Place
from fermix.agent.tools.edit import MOST_BYTES, occurrences
from fermix.trust import Trust
from tests.agent.tools.conftest import Toolbox
from tests.fakes.turns import make_turn

MORE = "give more of the text around it, so that it occurs once"
WHITE = "differs in white space or line ends only; read it and copy it exactly"


async def test_a_new_file_is_written_with_the_folders_above_it(toolbox: Toolbox) -> None:
    result = await toolbox.call("file_write", path="a/b/notes.md", content="héllo\n")

    assert result == ToolResult(True, "wrote 7 bytes to a/b/notes.md (a new file)")
    assert (toolbox.workspace / "a/b/notes.md").read_text("utf-8") == "héllo\n"
    assert [path.name for path in (toolbox.workspace / "a/b").iterdir()] == ["notes.md"]


async def test_an_existing_file_is_replaced_and_keeps_its_mode(toolbox: Toolbox) -> None:
    """R-47: never wider than it will be in the end."""
    toolbox.write("run.sh", "old")
    (toolbox.workspace / "run.sh").chmod(0o750)

    result = await toolbox.call("file_write", path="run.sh", content="new")

    assert result.text == "wrote 3 bytes to run.sh (replaced)"
    assert (toolbox.workspace / "run.sh").stat().st_mode & 0o7777 == 0o750


async def test_a_set_user_id_bit_does_not_pass_to_new_content(toolbox: Toolbox) -> None:
    toolbox.write("tool", "old")
    (toolbox.workspace / "tool").chmod(0o4755)

    await toolbox.call("file_write", path="tool", content="new")

    assert (toolbox.workspace / "tool").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"path": "no/such/f", "mkdir": False}, "the folder of no/such/f is not there; mkdir=true makes it"),
        ({"path": "folder"}, "folder is a folder; give the name of a file"),
        ({"path": "new/"}, "new/ names a folder; give the name of a file"),
        ({"path": "notes/x"}, "cannot write notes/x: Not a directory; nothing was changed"),
        ({"path": "x" * 256}, f"cannot write {'x' * 256}: File name too long; nothing was changed"),
    ],
)
async def test_what_cannot_be_written_says_why(
    toolbox: Toolbox, arguments: dict[str, str | bool], sentence: str
) -> None:
    toolbox.write("folder/x", "")
    toolbox.write("notes", "")

    assert await toolbox.call("file_write", content="text", **arguments) == ToolResult(False, sentence)


async def test_more_than_ten_megabytes_are_not_written(toolbox: Toolbox) -> None:
    result = await toolbox.call("file_write", path="big", content="é" * (MOST_BYTES // 2 + 1))

    assert (result.ok, (toolbox.workspace / "big").exists()) == (False, False)


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"one\ntwo\nthree\n", "two", "2", b"one\n2\nthree\n"),
        (b"one\r\ntwo\r\nthree", "one\ntwo\n", "1\n2\n3\n", b"1\r\n2\r\n3\r\nthree"),
        (b"a\r\nb\nc\n", "b\nc", "d", b"a\r\nd\n"),
        (b"\xef\xbb\xbfone\n", "one", "two", b"\xef\xbb\xbftwo\n"),
        (b"no end", " end", " End", b"no End"),
        ("café \U0001f469‍\U0001f467\n".encode(), "\U0001f469‍\U0001f467", "", "café \n".encode()),
    ],
)
async def test_an_edit_changes_its_part_and_nothing_else(
    toolbox: Toolbox, before: bytes, old: str, new: str, after: bytes
) -> None:
    toolbox.write("notes", before)

    result = await toolbox.call("file_edit", path="notes", old_string=old, new_string=new)

    assert result.ok, result.text
    assert (toolbox.workspace / "notes").read_bytes() == after


async def test_an_edit_says_where_it_was(toolbox: Toolbox) -> None:
    toolbox.write("notes", "one\ntwo\nthree\n")

    result = await toolbox.call("file_edit", path="notes", old_string="three", new_string="3")

    assert result.text == "changed notes at line 3; it has 10 bytes now"


@pytest.mark.parametrize(
    ("data", "old", "sentence"),
    [
        (b"x y x", "x", f"old_string occurs 2 times in f; {MORE}"),
        (b"aaa", "aa", f"old_string occurs 2 times in f; {MORE}"),
        (b"x" * 500, "x", f"old_string occurs 100 times or more in f; {MORE}"),
        (b"one", "two", "old_string is not in f; read the file and copy the part exactly"),
        (b"one\n  two", "one\ntwo", f"old_string is not in f, but {WHITE}"),
        (b"a\0b", "a", "f is a binary file; it has no text to change"),
        (b"caf\xe9", "caf", "f is not UTF-8 (byte 3); change it with shell"),
        (b"same", "new", "old_string and new_string are the same; nothing was changed"),
    ],
)
async def test_an_edit_that_is_not_clear_is_not_made(toolbox: Toolbox, data: bytes, old: str, sentence: str) -> None:
    toolbox.write("f", data)

    assert await toolbox.call("file_edit", path="f", old_string=old, new_string="new") == ToolResult(False, sentence)
    assert (toolbox.workspace / "f").read_bytes() == data


async def test_a_file_that_is_too_large_is_not_edited(toolbox: Toolbox) -> None:
    toolbox.write("big", "start")
    os.truncate(toolbox.workspace / "big", 1 << 40)

    result = await toolbox.call("file_edit", path="big", old_string="start", new_string="end")

    assert result == ToolResult(False, f"big has more than {MOST_BYTES} bytes; change it with shell")


async def test_an_edit_does_not_undo_what_somebody_else_wrote(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that changed between being read and being replaced is left as it is."""
    toolbox.write("notes", "one two")
    rewrite = Place.rewrite

    def late(place: Place, seen: os.stat_result, data: bytes) -> None:
        toolbox.write("notes", "one TWO")
        rewrite(place, seen, data)

    monkeypatch.setattr(Place, "rewrite", late)

    result = await toolbox.call("file_edit", path="notes", old_string="one", new_string="1")

    changed = toolbox.workspace / "notes"
    assert result == ToolResult(False, f"{changed} was changed by somebody else meanwhile; read it again")
    assert changed.read_text("utf-8") == "one TWO"
    assert [path.name for path in toolbox.workspace.iterdir()] == ["notes"]


@pytest.mark.parametrize("name", ["file_write", "file_edit"])
async def test_a_guest_changes_nothing(toolbox: Toolbox, name: str) -> None:
    shown = CapabilityRegistry(toolbox.tools).list_for(Trust.GUEST)

    assert name not in {tool.name for tool in shown}


@pytest.mark.parametrize("path", ["../bootstrap/main/SOUL.md", "../config.toml", "../skills/x/SKILL.md", "/etc/motd"])
async def test_what_decides_over_the_agent_is_not_written(toolbox: Toolbox, path: str) -> None:
    """INJ-05: an instruction in a file must not outlive its turn as a part of who the agent is."""
    written = await toolbox.call("file_write", make_turn(trust=Trust.OPERATOR), path=path, content="obey")

    assert (written.ok, written.denied) == (False, True)
    assert not (toolbox.workspace / path).exists() or Path(path).is_absolute()


def test_places_are_counted_overlapping() -> None:
    assert [occurrences("aXaXa", part) for part in ("aXa", "X", "b")] == [2, 2, 0]


async def test_a_folder_that_was_taken_away_is_not_told_to_be_made(toolbox: Toolbox) -> None:
    """It was told that mkdir=true makes it, which it was already."""
    toolbox.workspace.rename(toolbox.workspace.with_name("away"))
    result = await toolbox.call("file_write", path=str(toolbox.workspace / "f"), content="")

    assert result == ToolResult(
        False, f"the folder of {toolbox.workspace / 'f'} is not there; the open folder that holds it is gone"
    )
