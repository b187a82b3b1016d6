"""What is remembered, as a user meets it: told in one conversation, known in the next, seen and undone by the verb."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.provider import Answer, Asked, Call
from tests.fakes.stage import Stage, staged
from tests.flows.product import Product, compatible, running

pytestmark = pytest.mark.slow

STORE = Call("memory_store", {"category": "identity", "key": "home", "value": "lives in Hue"})


def prompt(asked: Asked) -> str:
    messages: list[dict[str, Any]] = asked.body["messages"]
    return "\n".join(str(message["content"]) for message in messages if message["role"] == "system")


def listed(product: Product) -> list[tuple[int, str]]:
    done = product.run("memory", "list", "--json")
    assert done.returncode == 0, done.stderr
    return [(row["id"], row["value"]) for row in json.loads(done.stdout)["memories"]]


def ask(product: Product, stage: Stage, session: str, *answers: Answer) -> list[str]:
    """Ask in a session; the prompts that the model was given."""
    stage.play(*answers)
    done = product.run("ask", "hello", "--session", session)
    assert done.returncode == 0, done.stderr
    return [prompt(asked) for asked in stage.asked]


def test_a_fact_lasts_over_conversations_and_a_kill_and_is_undone(tmp_path: Path) -> None:
    """Issue 5: the same facts with and without a daemon, told to the model until they are forgotten."""
    with staged() as stage, running(tmp_path, compatible(stage.base_url)) as product:
        ask(product, stage, "one", Answer(calls=(STORE,)), Answer(text="kept"))
        told = ask(product, stage, "two", Answer(text="hi"))
        assert "<memory-context>\n# About your owner\n\n## Identity\n\n- home: lives in Hue\n" in told[0]
        assert listed(product) == [(1, "lives in Hue")]
        product.kill()
        assert listed(product) == [(1, "lives in Hue")]
        assert product.run("memory", "forget", "1").returncode == 0
        product.start()
        assert "lives in Hue" not in ask(product, stage, "three", Answer(text="hi"))[0]
        assert product.run("memory", "restore", "1").returncode == 0
        assert "lives in Hue" in ask(product, stage, "three", Answer(text="hi"))[0]
        shown = (product.home / "memory/main/USER.md").read_text(encoding="utf-8")
        assert shown == "# About your owner\n\n## Identity\n\n- home: lives in Hue\n"
        history = product.run("memory", "history", "1").stdout
        assert [line.split()[4] for line in history.splitlines()] == ["restored", "forgotten", "stored"]
