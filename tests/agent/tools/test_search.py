"""content_search on a real folder, plain and by regular expression."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from fermix.agent.model import ToolResult
from fermix.agent.tools.search import MORE_NOTE
from tests.agent.tools.conftest import Toolbox
from tests.requirements import covers


@pytest.fixture
def tree(toolbox: Toolbox) -> Toolbox:
    toolbox.write("a.txt", "nothing\n  the needle lies here\n")
    toolbox.write("src/b.txt", "needles\nno\nNeedle\n")
    toolbox.write("binary", b"needle\0\n")
    toolbox.write("latin", b"caf\xe9 needle\n")
    return toolbox


async def test_lines_are_found_with_their_place(tree: Toolbox) -> None:
    result = await tree.call("content_search", pattern="needle")

    assert result == ToolResult(True, "a.txt:2: the needle lies here\nlatin:1: caf\ufffd needle\nsrc/b.txt:1: needles")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"pattern": "needle", "path": "src"}, "src/b.txt:1: needles"),
        ({"pattern": "needle", "path": "a.txt"}, "a.txt:2: the needle lies here"),
        ({"pattern": "n.edle"}, "no line in . matches 'n.edle'"),
        (
            {"pattern": "needle", "max_results": 1},
            "a.txt:2: the needle lies here\n" + MORE_NOTE,
        ),
    ],
)
async def test_a_search_keeps_to_its_bounds(tree: Toolbox, arguments: dict[str, str | int], text: str) -> None:
    assert await tree.call("content_search", **arguments) == ToolResult(True, text)


@covers("helper.own-process")
async def test_a_regular_expression_finds_the_same_way(tree: Toolbox) -> None:
    result = await tree.call("content_search", pattern=r"^\s*[Nn]eedle\w?$", regex=True)
    first = await tree.call("content_search", pattern="needle", regex=True, max_results=1, path="src")

    assert result.text == "src/b.txt:1: needles\nsrc/b.txt:3: Needle"
    assert first.text == "src/b.txt:1: needles\n" + MORE_NOTE


async def test_a_wrong_expression_says_what_is_wrong(tree: Toolbox) -> None:
    result = await tree.call("content_search", pattern="(", regex=True)

    assert not result.ok
    assert result.text.startswith("not a regular expression: missing ), unterminated subpattern")


async def test_an_expression_without_end_holds_nobody_up(toolbox: Toolbox) -> None:
    """A pattern that tries for years: the loop goes on, and the process is gone at the time limit."""
    toolbox.write("a.txt", "a" * 60 + "!\n")
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        beating = group.create_task(beat())
        result = await toolbox.call("content_search", pattern="(a+)+$", regex=True, timeout=2)
        beating.cancel()

    assert result.text == MORE_NOTE
    assert beats > 1_000


async def test_a_search_passes_by_what_is_closed_or_outside(toolbox: Toolbox, tmp_path: Path) -> None:
    """R-29: each candidate is judged again when it is opened."""
    toolbox.home.auth.write_text("needle", encoding="utf-8")
    (tmp_path / "other").write_text("needle", encoding="utf-8")
    os.link(toolbox.home.auth, toolbox.workspace / "twin")
    (toolbox.workspace / "link").symlink_to(tmp_path / "other")
    os.mkfifo(toolbox.workspace / "pipe")

    for regex in (False, True):
        result = await toolbox.call("content_search", pattern="needle", regex=regex)
        assert result == ToolResult(True, "no line in . matches 'needle'")


@pytest.mark.parametrize("regex", [False, True])
async def test_a_search_says_where_it_did_not_look(toolbox: Toolbox, *, regex: bool) -> None:
    cut, rest = "/".join("d" * 64), "/".join("d" * 10)
    toolbox.write(f"{cut}/{rest}/deep.txt", "needle\n")

    first = await toolbox.call("content_search", pattern="needle", regex=regex)
    then = await toolbox.call("content_search", pattern="needle", regex=regex, path=cut)

    assert first.text == f"[not searched, 64 folders deep: search with path={cut}]"
    assert then.text == f"{cut}/{rest}/deep.txt:1: needle"


@pytest.mark.parametrize("size_bytes", [262_143, 262_144, 262_145, 524_288, 16_777_216])
async def test_a_file_of_any_size_is_searched_to_its_end(toolbox: Toolbox, size_bytes: int) -> None:
    toolbox.write("f", b"x" * (size_bytes - 7) + b"\nneedle")

    assert (await toolbox.call("content_search", pattern="needle")).text == "f:2: needle"


async def test_a_place_outside_is_denied(toolbox: Toolbox) -> None:
    for regex in (False, True):
        result = await toolbox.call("content_search", pattern="root", path="/etc", regex=regex)
        assert (result.ok, result.denied) == (False, True)


async def test_a_missing_place_is_said(toolbox: Toolbox) -> None:
    for regex in (False, True):
        result = await toolbox.call("content_search", pattern="x", path="none", regex=regex)
        assert result == ToolResult(False, "cannot search in none: No such file or directory")


async def test_a_stopped_search_leaves_nothing_open(toolbox: Toolbox) -> None:
    for number in range(300):
        toolbox.write(f"{number % 20}/{number}.txt", "text\n" * 500)

    async with asyncio.TaskGroup() as group:
        searches = [
            group.create_task(toolbox.call("content_search", pattern="none", regex=regex)) for regex in (False, True)
        ]
        await asyncio.sleep(0)
        for search in searches:
            search.cancel()

    assert all(search.cancelled() for search in searches)


async def test_our_own_program_learns_where_it_is_unpacked(tree: Toolbox, tmp_path: Path) -> None:
    """Without it the frozen file would unpack itself a second time; a key is not passed on."""
    program = tmp_path / "fermix"
    program.write_text("#!/bin/sh\nenv\n", encoding="utf-8")
    program.chmod(0o755)

    result = await tree.with_program(str(program)).call("content_search", pattern="needle", regex=True)

    assert "XDG_CACHE_HOME=/cache" in result.text
    assert "OPENAI_API_KEY" not in result.text
