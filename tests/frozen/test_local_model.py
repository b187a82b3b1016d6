"""The file alone on a machine, with the real local model: no Python, no provider, no network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.fakes.local_model import engine_wheel, model_file
from tests.frozen.bare import BareMachine
from tests.frozen.packs import can_mount
from tests.requirements import covers

pytestmark = [
    pytest.mark.frozen,
    pytest.mark.model,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not can_mount(), reason="needs the right to mount in a namespace of its own"),
]
ANSWER_S = 180


@pytest.fixture
def machine(program: Path, tmp_path: Path) -> BareMachine:
    """A machine with a C library only, to which somebody has carried the two files."""
    model, wheel = model_file(), engine_wheel()
    machine = BareMachine.make(tmp_path / "bare", program)
    for file in (model, wheel):
        shutil.copyfile(file, machine.root / "probe" / file.name)
    return machine


@covers("ship.binary.self-contained")
def test_local_model_answers_where_there_is_only_a_c_library(machine: BareMachine) -> None:
    """Issue 2, item 7: the engine is fetched like the model; here both are brought, then it reads a file."""
    brought = [option for file in (machine.root / "probe").iterdir() for option in ("--from", f"/probe/{file.name}")]
    fetched = machine.run("model", "fetch", *brought, timeout_s=ANSWER_S)
    assert (fetched.returncode, fetched.stderr) == (0, "")
    (machine.root / "home/.fermix/config.toml").write_text("[fermix_web]\nport = 0\n", encoding="utf-8")
    (machine.root / "home/.fermix/workspace").mkdir(exist_ok=True)
    (machine.root / "home/.fermix/workspace/notes.txt").write_text("The meeting is on Thursday.", encoding="utf-8")

    with machine.daemon():
        asked = machine.run("ask", "--json", "read notes.txt", timeout_s=ANSWER_S)
    answer = json.loads(asked.stdout)

    assert asked.returncode == 0
    assert answer["model"].startswith("local/")
    assert answer["response"].strip()
