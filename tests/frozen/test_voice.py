"""The file alone on a machine, listening to a person: no Python, no network, the engine and model carried there."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from fermix.gateway.transcription.listener import HEADER
from tests.fakes.voice import spoken, voice_files
from tests.frozen.bare import BareMachine
from tests.frozen.packs import can_mount
from tests.requirements import covers

pytestmark = [
    pytest.mark.frozen,
    pytest.mark.model,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not can_mount(), reason="needs the right to mount in a namespace of its own"),
]
LISTEN_S = 120


@covers("ship.binary.self-contained")
def test_voice_note_is_understood_where_there_is_only_a_c_library(program: Path, tmp_path: Path) -> None:
    """Issue 3, item 4: what `fermix model fetch --voice` unpacks is all that listening needs."""
    files = voice_files()
    if files.engine_folder is None:
        pytest.skip("an installed engine cannot be carried; `make model` without the extra `voice` unpacks one")
    machine = BareMachine.make(tmp_path / "bare", program)
    models = machine.root / "home/.fermix/models"
    for folder in (files.folder, files.engine_folder):
        shutil.copytree(folder, models / folder.name)
    state = json.loads(machine.run("model", "status", "--json").stdout)
    assert state["voice"]["missing"] == []

    audio = spoken("beckett", tmp_path).read_bytes()
    places = ("--model", f"/home/.fermix/models/{files.folder.name}")
    engine = ("--engine", f"/home/.fermix/models/{files.engine_folder.name}")
    ours = ("--threads", "2", "--parent", str(os.getpid()))
    sent = HEADER.pack(len(audio)) + audio
    done = machine.talk("_listen", *places, *engine, *ours, sent=sent, timeout_s=LISTEN_S)

    assert done.returncode == 0, done.stderr
    assert "Ever tried" in json.loads(done.stdout.splitlines()[1])["text"]
