"""The budget of a real daemon: what is asked is booked, a limit counts from the reload on, and outlives the daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fermix.protocol.ask import Connection
from tests.flows.product import Product, compatible, running, scripted

pytestmark = pytest.mark.slow

PRICE = '[budget.prices."openai_compatible/scripted"]\ninput = 1000.0\noutput = 1000.0\n'
LIMIT = "[budget]\nday_usd = 0.001\n"


def today(product: Product) -> float:
    answer = json.loads(product.run("usage", "--json").stdout)["today"]["usd"]
    assert isinstance(answer, float)
    return answer


def test_a_limit_counts_from_the_reload_on_and_the_books_outlive_the_daemon(tmp_path: Path) -> None:
    with scripted(tmp_path, [{"text": "hello"}] * 4) as url:
        config = compatible(url) + PRICE
        with running(tmp_path, config) as product:
            assert product.run("ask", "hi").stdout == "hello\n"
            spent = today(product)
            (product.home / "config.toml").write_text(config + LIMIT, encoding="utf-8")
            connection = Connection(str(product.home / "daemon.sock"), client="test")
            connection.request("config.reload", {})
            connection.close()
            refused = product.run("ask", "hi")
            assert product.run("stop").returncode == 0

            assert spent > 0
            assert "the limit of $0.001 for a day leaves no room" in refused.stdout + refused.stderr
            assert today(product) == spent
            assert "limit day_usd: " in product.run("usage").stdout
