"""file_read and glob_search on a real folder."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from fermix.agent.documents.kinds import Kind
from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.tools.files import READ_BYTES, states_after
from fermix.trust import Trust
from tests.agent.tools.conftest import Toolbox, open_descriptors
from tests.fakes.turns import make_turn, turn_from
from tests.waiting import until


async def test_a_file_is_read_whole(toolbox: Toolbox) -> None:
    toolbox.write("notes.txt", "one\ntwo\n")

    assert await toolbox.call("file_read", path="notes.txt") == ToolResult(True, "one\ntwo\n")


async def test_a_guest_reads_in_the_workspace(toolbox: Toolbox) -> None:
    toolbox.write("notes.txt", "one\n")

    result = await toolbox.call("file_read", make_turn(trust=Trust.GUEST), path="notes.txt")

    assert result == ToolResult(True, "one\n")


async def test_a_part_is_read_and_the_next_offset_named(toolbox: Toolbox) -> None:
    toolbox.write("notes.txt", "".join(f"{number}\n" for number in range(1, 11)))

    part = await toolbox.call("file_read", path="notes.txt", offset=3, limit=2)
    rest = await toolbox.call("file_read", path="notes.txt", offset=9, limit=5)

    assert part.text == "3\n4\n\n[more follows: read on with offset=5]"
    assert rest.text == "9\n10\n"


async def test_a_long_file_is_read_in_turns_without_a_hole(toolbox: Toolbox) -> None:
    """EXE-13: cut at a line, so never inside a character."""
    text = "".join(f"{number} 漢字 👩‍👩‍👧\n" for number in range(1, 4_001))
    toolbox.write("long.txt", text)
    read, offset = "", 1
    while offset:
        result = await toolbox.call("file_read", path="long.txt", offset=offset)
        body, found, marker = result.text.partition("\n[more follows: read on with offset=")
        assert len(body.encode()) <= READ_BYTES
        read += body
        offset = int(marker.rstrip("]")) if found else 0

    assert read == text


async def test_a_line_that_is_too_long_is_cut_and_said(toolbox: Toolbox) -> None:
    toolbox.write("line.txt", "x" * 3 * READ_BYTES + "\nend\n")

    first = await toolbox.call("file_read", path="line.txt")
    second = await toolbox.call("file_read", path="line.txt", offset=2)

    assert first.text == "x" * READ_BYTES + "\n[line 1 goes on; the next line is offset=2]"
    assert second.text == "end\n"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "(empty file)"),
        (b"\xef\xbb\xbfbom\n", "bom\n"),
        (b"caf\xe9\n", "caf\ufffd\n"),
        (b"no end", "no end"),
    ],
)
async def test_odd_text_is_still_text(toolbox: Toolbox, data: bytes, text: str) -> None:
    """EXE-10: what is not UTF-8 is replaced at the boundary."""
    toolbox.write("odd.txt", data)

    assert await toolbox.call("file_read", path="odd.txt") == ToolResult(True, text)


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("missing.txt", "cannot read missing.txt: No such file or directory"),
        ("folder", "folder is a folder; use glob_search with this path to see what is in it"),
        ("data.bin", "data.bin has no text to read: binary file, 6 bytes"),
    ],
)
async def test_what_cannot_be_read_says_what_to_do(toolbox: Toolbox, path: str, sentence: str) -> None:
    toolbox.write("data.bin", b"ab\0cd\n")
    toolbox.write("folder/x", "")

    assert await toolbox.call("file_read", path=path) == ToolResult(False, sentence)


async def test_an_offset_behind_the_end_says_where_the_end_is(toolbox: Toolbox) -> None:
    toolbox.write("notes.txt", "one\ntwo\n")

    result = await toolbox.call("file_read", path="notes.txt", offset=9)

    assert result == ToolResult(False, "notes.txt has only 2 lines")


async def test_a_huge_sparse_file_is_not_read_through(toolbox: Toolbox) -> None:
    """R-29: a file of a terabyte that takes no space."""
    toolbox.write("huge", "text\n" * 2_000)
    os.truncate(toolbox.workspace / "huge", 1 << 40)

    result = await toolbox.call("file_read", path="huge", offset=5_000)

    assert result == ToolResult(False, "line 5000 lies too deep in huge; use shell, for example sed -n")


@pytest.mark.parametrize("path", ["../auth.json", "/etc/passwd", "~/.ssh/id", "link", "a\0b"])
async def test_a_path_outside_is_denied_with_what_is_open(toolbox: Toolbox, path: str) -> None:
    (toolbox.workspace / "link").symlink_to("/etc/passwd")

    result = await toolbox.call("file_read", path=path)

    assert (result.ok, result.denied) == (False, True)


async def test_a_file_that_was_opened_for_a_stopped_turn_is_closed(
    toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that opens it cannot be stopped, so nobody is there to take the descriptor."""
    release, begun = threading.Event(), threading.Event()

    def judge_slowly(_head: bytes) -> Kind:
        begun.set()
        assert release.wait(5)
        return Kind("PNG")

    monkeypatch.setattr("fermix.agent.tools.files.kind_of", judge_slowly)
    toolbox.write("picture", b"x")
    opened = str(toolbox.workspace / "picture")

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(toolbox.call("file_read", path="picture"))
        await until(begun.is_set)
        reading.cancel()
    assert opened in open_descriptors()
    release.set()

    await until(lambda: opened not in open_descriptors())


async def test_a_folder_is_listed_with_dotfiles_in_order(toolbox: Toolbox) -> None:
    for name in ("b.txt", ".hidden", "a/deep.txt"):
        toolbox.write(name, "")

    assert (await toolbox.call("glob_search", pattern="*")).text == ".hidden\na/\nb.txt"


async def test_a_path_in_front_makes_results_that_can_be_read(toolbox: Toolbox) -> None:
    toolbox.write("src/pkg/mod.py", "text")
    toolbox.write("src/other.txt", "")

    found = await toolbox.call("glob_search", pattern="**/*.py", path="src")

    assert found.text == "src/pkg/mod.py"
    assert (await toolbox.call("file_read", path=found.text)).text == "text"


async def test_a_search_stops_at_its_number_and_says_so(toolbox: Toolbox) -> None:
    for number in range(5):
        toolbox.write(f"{number}.txt", "")

    result = await toolbox.call("glob_search", pattern="*", max_results=2)

    assert result.text == "0.txt\n1.txt\n[there may be more: narrow the pattern or the path]"


async def test_a_walk_passes_by_closed_places_and_links(toolbox: Toolbox, tmp_path: Path) -> None:
    """SBX-05: a hard link to a protected file is passed by as well."""
    toolbox.home.auth.write_text("secret", encoding="utf-8")
    os.link(toolbox.home.auth, toolbox.workspace / "twin")
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/secret.txt").touch()
    (toolbox.workspace / "out").symlink_to(tmp_path / "beside")
    (toolbox.workspace / "loop").symlink_to(".")

    assert (await toolbox.call("glob_search", pattern="**/*")).text == "loop\nout"


@pytest.mark.parametrize(
    ("pattern", "path", "sentence"),
    [
        ("/etc/*", ".", "give the folder as path, and a pattern relative to it"),
        ("../*", ".", "give the folder as path, and a pattern relative to it"),
        ("*", "missing", "cannot look into missing: No such file or directory"),
        ("*", "file", "cannot look into file: Not a directory"),
    ],
)
async def test_a_search_that_cannot_be_done_says_why(toolbox: Toolbox, pattern: str, path: str, sentence: str) -> None:
    toolbox.write("file", "")

    assert await toolbox.call("glob_search", pattern=pattern, path=path) == ToolResult(False, sentence)


async def test_nothing_found_is_an_answer(toolbox: Toolbox) -> None:
    assert await toolbox.call("glob_search", pattern="*.py") == ToolResult(True, "nothing in . matches *.py")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("glob_search", {"pattern": "*"}),
        ("file_read", {"path": "plan.md"}),
        ("content_search", {"pattern": "a"}),
        ("content_search", {"pattern": "a", "regex": True}),
    ],
)
async def test_a_folder_that_is_not_open_does_not_seem_empty(
    toolbox: Toolbox, tmp_path: Path, tool: str, arguments: dict[str, str | bool]
) -> None:
    """Asked from a folder outside the home, a tool says that it may not look there and how it could."""
    (tmp_path / "plan.md").write_text("a plan", encoding="utf-8")

    result = await toolbox.call(tool, turn_from(tmp_path), **arguments)

    assert result == ToolResult(
        False,
        f"I may not look into {tmp_path}: only these folders are open: {toolbox.workspace}; "
        "run from a folder inside your home, or open a folder in it with `fermix grant path`",
        denied=True,
    )


async def test_a_tree_without_end_is_left_in_time(toolbox: Toolbox) -> None:
    deep = toolbox.workspace
    for _ in range(80):
        deep /= "d"
    deep.mkdir(parents=True)

    result = await toolbox.call("glob_search", pattern="**/*", max_results=1_000)

    rows = result.text.splitlines()
    assert rows[:64] == ["d/" * depth for depth in range(1, 65)]
    cut = "/".join("d" * 64)
    assert rows[64:] == [f"[not looked into, 64 folders deep: search with path={cut}]"]
    assert (await toolbox.call("glob_search", pattern="**/*", path=cut)).text.count("\n") == 15


@pytest.mark.parametrize(
    ("path", "pattern", "fits"),
    [
        ("a.py", "*.py", True),
        ("a/b.py", "*.py", False),
        ("a/b.py", "**/*.py", True),
        ("b.py", "**/*.py", True),
        ("a/b/c/d.py", "a/**/d.py", True),
        ("a/d.py", "a/**/d.py", True),
        ("a/b", "a/**", True),
        ("x[1].py", "x[[]1].py", True),
        ("A.py", "a.py", False),
        ("/".join("a" * 60), "**/a/**/a/**/a/**/a/**/a/**/a/**/b", False),
    ],
)
def test_patterns_match_as_a_shell_does(path: str, pattern: str, *, fits: bool) -> None:
    parts = tuple(pattern.split("/"))

    assert (len(parts) in states_after(tuple(path.split("/")), parts)) == fits


@pytest.mark.parametrize("tool", ["file_read", "glob_search", "content_search", "file_write", "shell"])
@pytest.mark.parametrize("part", ["a/", "../"])
async def test_a_path_that_no_system_takes_is_refused_before_it_is_looked_at(
    toolbox: Toolbox, tool: str, part: str
) -> None:
    """A path with a hundred thousand folders in it took the daemon's memory until the system ended the daemon."""
    others: dict[str, dict[str, JsonValue]] = {
        "glob_search": {"pattern": "*"},
        "content_search": {"pattern": "a"},
        "file_write": {"content": ""},
        "shell": {"command": "true"},
    }
    named: dict[str, JsonValue] = {"working_dir" if tool == "shell" else "path": f"x/{part * 2_100}z"}
    result = await toolbox.call(tool, **{**others.get(tool, {}), **named})

    assert "too long" in result.text
    assert len(result.text) < 1_000


async def test_a_pattern_is_no_longer_than_a_person_would_write_one(toolbox: Toolbox) -> None:
    """Fifty thousand brackets took the matcher a minute at each name."""
    toolbox.write("a.txt", "")
    result = await toolbox.call("glob_search", pattern="[" * 50_000)

    assert not result.ok
    assert "pattern" in result.text
