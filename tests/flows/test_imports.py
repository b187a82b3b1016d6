"""What the daemon imports once it runs: nothing, because the frozen program's files may be gone by then."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.documents import samples
from tests.fakes.repository import Repository
from tests.flows.product import WAIT_S, Product, compatible, is_frozen, scripted

pytestmark = [pytest.mark.slow, pytest.mark.skipif(is_frozen(), reason="Python itself tells, from source")]

CALLS: list[dict[str, object]] = [
    {"name": "content_search", "arguments": {"pattern": "a.c", "regex": True}},
    {"name": "shell", "arguments": {"command": "echo one; exit 3"}},
    {"name": "file_read", "arguments": {"path": "none"}},
    {"name": "glob_search", "arguments": {"pattern": "**/*"}},
    {"name": "file_read", "arguments": {"path": "a.pdf"}},
    {"name": "file_read", "arguments": {"path": "a.docx"}},
    {"name": "file_read", "arguments": {"path": "a.xlsx"}},
    {"name": "file_read", "arguments": {"path": "a.png"}},
    {"name": "file_write", "arguments": {"path": "new/plan.md", "content": "one two"}},
    {"name": "file_edit", "arguments": {"path": "new/plan.md", "old_string": "two", "new_string": "three"}},
    {"name": "git_read", "arguments": {"command": "status", "repo": "repo"}},
    {"name": "git_write", "arguments": {"command": "add", "repo": "repo", "args": ["."]}},
    {"name": "run_greet", "arguments": {"args": ["Ann"]}},
    {"name": "tool_help", "arguments": {"name": "git_read"}},
    {"name": "tool_result_recall", "arguments": {"call_id": "none"}},
    {"name": "no_such_tool", "arguments": {}},
    {"name": "web_fetch", "arguments": {"url": "http://127.0.0.1:1/"}},
]
GREET = '[sandbox.commands.greet]\ncommand = "/bin/echo"\n'
LATE = {"tomlkit"}
"""Four megabytes that a daemon takes on with the first change; without its files a change says to try again."""
READERS = {"lxml", "bs4", "markdownify", "pypdf", "openpyxl", "PIL"}


@contextmanager
def telling(product: Product, file: Path) -> Generator[None]:
    """Run the daemon from source, with a line in `file` for each import."""
    argv = [sys.executable, "-X", "importtime", "-m", "fermix", "--daemon"]
    with file.open("a") as told, subprocess.Popen(argv, env=product.environ, stderr=told, stdout=told) as daemon:
        try:
            deadline = time.monotonic() + WAIT_S
            while product.run("status").returncode not in (0, 1):
                assert time.monotonic() < deadline
            yield
        finally:
            daemon.terminate()
            daemon.wait(WAIT_S)


def fill(workspace: Path) -> None:
    workspace.mkdir(mode=0o700, exist_ok=True)
    Repository.make(workspace / "repo")
    (workspace / "a.pdf").write_bytes(samples.pdf("a page"))
    (workspace / "a.docx").write_bytes(samples.word("Dear Ann,"))
    (workspace / "a.xlsx").write_bytes(samples.workbook())
    (workspace / "a.png").write_bytes(samples.picture("PNG", 3_000, 1_000))


def imported(told: str) -> list[str]:
    lines = [line for line in told.splitlines() if line.startswith("import time:")]
    return [line.rpartition("|")[2].strip() for line in lines]


def test_nothing_is_imported_after_the_start(tmp_path: Path) -> None:
    """PKG-02: "import everything at start". Every tool, changes (their library alone comes late), a failing
    provider, names to look up, a stop.
    """
    file = tmp_path / "imports"
    with scripted(tmp_path, [{"calls": CALLS}, {"text": "done"}]) as url:
        product = Product(tmp_path, compatible(url.replace("127.0.0.1", "localhost")) + GREET)
        product.prepare()
        fill(product.home / "workspace")
        with telling(product, file):
            at_start = file.read_text(encoding="utf-8")
            for text in ("hello", "/sandbox", "/sandbox explain", "/sandbox mode strict"):
                assert product.run("ask", text).returncode == 0
            assert product.run("ask", "--attach", "/etc/hostname", "hello").returncode == 0
            assert product.run("ask", "/help").returncode == 0
            product.get("/health/ready")
            other = ("--provider", "openai_compatible", "--model", "m", "--skip-probe", "--base-url")
            assert product.run("setup", *other, "https://name.invalid/v1").returncode == 0
            assert product.run("ask", "hello").returncode == 1
            folder = product.user_home / "photos"
            folder.mkdir()
            assert product.run("ask", f"/grant path {folder}").returncode == 0
            assert product.run("sandbox", "env", "deny", "TICKETS").returncode == 0
    later = file.read_text(encoding="utf-8").removeprefix(at_start)

    assert "encodings.idna" in at_start
    assert {name.partition(".")[0] for name in imported(later)} == LATE
    assert {name.partition(".")[0] for name in imported(at_start)} & READERS == set()
