"""Foreign documents meet a parser only in a process of its own."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from fermix.agent.documents.reading import LIMITS, Reading
from fermix.errors import Unusable
from fermix.native.child import Limits
from fermix.native.program import own_program
from tests.agent.tools.conftest import Toolbox
from tests.fakes.turns import make_turn

PAGE = {"url": "https://e.example/a/", "charset": ""}


async def text_of(box: Toolbox, data: bytes, program: tuple[str, ...] | None = None, kind: str = "page") -> str:
    reading = Reading(box.deps.sandbox, box.deps.workers, program or own_program({}))
    async with asyncio.timeout(20):
        return await reading.text(kind, data, make_turn(), PAGE)


async def test_a_page_is_read_in_another_process(toolbox: Toolbox) -> None:
    text = await text_of(toolbox, b"<h1>Hi \xe2\x9c\x93</h1><p><a href=b>there</a>")

    assert text == "# Hi ✓\n\n[there](https://e.example/a/b)"


def script(code: str) -> tuple[str, ...]:
    """A program that stands for ours; what it is given as further words it ignores."""
    return ("/bin/sh", "-c", code)


async def test_that_process_sees_no_file_of_the_owners_and_no_network(toolbox: Toolbox, tmp_path: Path) -> None:
    """R-54 and the walls of 0013: whoever takes the parser over is alone with the page."""
    toolbox.write("secret.txt", "canary")
    (tmp_path / "beside").write_text("canary", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        tries = (
            f"cat {toolbox.workspace}/secret.txt",
            f"cat {tmp_path}/beside",
            f"ls {toolbox.home.root}",
            f"bash -c 'echo > /dev/tcp/127.0.0.1/{port}'",
            f"touch {toolbox.workspace}/new",
        )
        code = "; ".join(f"({one}) >/dev/null 2>&1 && echo 'did: {number}'" for number, one in enumerate(tries))
        assert await text_of(toolbox, b"", script(f"{code}; true")) == ""

    assert not (toolbox.workspace / "new").exists()


@pytest.mark.parametrize("code", ["exit 1", "kill -SEGV $$", "echo half; exit 3", "head -c 9000000 /dev/zero"])
async def test_what_becomes_of_it_is_one_error(toolbox: Toolbox, code: str) -> None:
    with pytest.raises(Unusable) as caught:
        await text_of(toolbox, b"", script(code))

    assert caught.value.user_text is not None
    assert caught.value.user_text.startswith("The page could not be read as text")


async def test_one_that_never_ends_is_ended(toolbox: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fermix.agent.documents.reading.LIMITS", Limits(timeout_s=0.2))
    assert LIMITS.timeout_s == 30.0

    with pytest.raises(Unusable):
        await text_of(toolbox, b"", script("sleep 60"))


async def test_a_kind_nobody_knows_is_one_error(toolbox: Toolbox) -> None:
    with pytest.raises(Unusable):
        await text_of(toolbox, b"", kind="painting")


async def test_its_memory_is_bounded(toolbox: Toolbox) -> None:
    code = "from fermix.agent.documents.serve_file import bound_ourselves; bound_ourselves(); print(len(bytes(2**30)))"
    python, *options = own_program({})[:2]

    with pytest.raises(Unusable):
        await text_of(toolbox, b"", (python, *options, "-c", code))
