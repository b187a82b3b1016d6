"""What the daemon imports once it runs: nothing, because the frozen program's files may be gone by then."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.flows.product import WAIT_S, Product, compatible, is_frozen, scripted

pytestmark = [pytest.mark.slow, pytest.mark.skipif(is_frozen(), reason="Python itself tells, from source")]

CALLS = [
    {"name": "content_search", "arguments": {"pattern": "a.c", "regex": True}},
    {"name": "shell", "arguments": {"command": "echo one; exit 3"}},
    {"name": "file_read", "arguments": {"path": "none"}},
    {"name": "glob_search", "arguments": {"pattern": "**/*"}},
    {"name": "no_such_tool", "arguments": {}},
]


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


def test_nothing_is_imported_after_the_start(tmp_path: Path) -> None:
    """PKG-02: "import everything at start". A turn with every tool, a failing provider, names to look up, a stop."""
    file = tmp_path / "imports"
    with scripted(tmp_path, [{"calls": CALLS}, {"text": "done"}]) as url:
        product = Product(tmp_path, compatible(url.replace("127.0.0.1", "localhost")))
        product.prepare()
        with telling(product, file):
            at_start = file.read_text(encoding="utf-8")
            assert product.run("ask", "hello").stdout == "done\n"
            assert product.run("ask", "--attach", "/etc/hostname", "hello").returncode == 0
            assert product.run("ask", "/help").returncode == 0
            product.get("/health/ready")
            other = ("--provider", "openai_compatible", "--model", "m", "--skip-probe", "--base-url")
            assert product.run("setup", *other, "https://name.invalid/v1").returncode == 0
            assert product.run("ask", "hello").returncode == 1
    later = file.read_text(encoding="utf-8").removeprefix(at_start)

    assert "encodings.idna" in at_start
    assert [line.rpartition("|")[2].strip() for line in later.splitlines() if line.startswith("import time:")] == []
