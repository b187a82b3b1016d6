"""Plain `fermix` as a person meets it: the screen opens, starts the daemon, and both answer."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fakes.terminal import SCREEN, terminal
from tests.flows.product import WAIT_S, Product, compatible, program, scripted

pytestmark = pytest.mark.slow


@pytest.fixture
def product(tmp_path: Path) -> Generator[Product]:
    """An install where nothing runs yet; what the screen starts is stopped at the end."""
    with scripted(tmp_path, [{"text": "Hello from the script."}]) as url:
        product = Product(tmp_path, compatible(url))
        product.prepare()
        yield product
        product.run("stop")


def test_screen_starts_the_daemon_and_leaves_it_running(product: Product) -> None:
    """Issue 2, items 1, 5 and 7: the same program is screen, headless daemon and one-shot, from source and frozen."""
    with terminal(*program(), environ={**SCREEN, **product.environ}) as screen:
        screen.until("Ask anything", WAIT_S)
        screen.type("hello\r")
        screen.until("from the script.", WAIT_S)
        screen.type("\x03\x03")
        code = screen.end()

    assert code == 0
    assert product.run("ask", "again").stdout == "Hello from the script.\n"
