"""The whole product with the real embedded model: no provider, no network, a real tool call."""

from __future__ import annotations

import json
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.fakes.local_model import engine_wheel, model_file, real_model
from tests.flows.product import Product, is_frozen, running

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.timeout(240)]

CONFIG = "[fermix_web]\nport = 0\n"


@pytest.fixture
def product(tmp_path: Path) -> Generator[Product]:
    """A home that holds the model; the frozen program is brought its engine too."""
    product = Product(tmp_path, CONFIG)
    product.prepare()
    if is_frozen():
        model = model_file()
        brought = product.run("model", "fetch", "--from", str(model), "--from", str(engine_wheel()))
        assert brought.returncode == 0, brought.stderr
    else:
        model = real_model()
        models = product.home / "models"
        models.mkdir(mode=0o700)
        shutil.copyfile(model, models / model.name)
    with running(tmp_path, CONFIG) as product:
        yield product


def test_the_local_model_reads_a_file_when_asked(product: Product) -> None:
    """The main job without a key and without a network: the model must really call file_read."""
    folder = product.user_home / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("The meeting is on Thursday in room 4711.", encoding="utf-8")
    done = product.run("ask", "--json", "read notes.txt", timeout_s=180, cwd=folder)
    answer = json.loads(done.stdout)
    lines = [line for file in (product.home / "traces").rglob("tool_exec.jsonl") for line in _lines(file)]
    calls = [line for line in lines if line["event"] == "ToolCalled"]

    assert done.returncode == 0
    assert answer["model"].startswith("local/")
    assert [call["name"] for call in calls] == ["file_read"]
    assert calls[0]["ok"] is True
    assert answer["response"].strip()


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
