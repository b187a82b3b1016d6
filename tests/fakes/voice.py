"""The real model that listens, and people who speak, for tests that need them; each says what brings what is missing.

The model lies in build/models/ (FERMIX_TEST_VOICE names another folder), the recordings are in a wheel that the package
index has, in build/wheels/. They are of people reading: a speech synthesizer would be a poor judge.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Literal

import pytest

from fermix.gateway.transcription import VoiceFiles

ROOT = Path(__file__).parents[2]
SPEECH = "moonshine-voice==0.1.5"
PIP_S = 300

RECODE = """
import sys, av
with av.open(sys.argv[1]) as wave, av.open(sys.argv[2], "w", format="ogg") as note:
    stream = note.add_stream("libopus", rate=48_000, layout="mono")
    stream.bit_rate = 24_000
    resampler = av.AudioResampler("s16", "mono", 48_000)
    for frame in [*wave.decode(audio=0), None]:
        for piece in resampler.resample(frame):
            note.mux(stream.encode(piece))
    note.mux(stream.encode(None))
"""


def voice_files() -> VoiceFiles:
    """Return the real model with its engine; skips the test when one of them is not here."""
    folder = Path(os.environ.get("FERMIX_TEST_VOICE") or ROOT / "build" / "models")
    files = VoiceFiles.of(folder)
    if not files.ready:
        pytest.skip(f"nothing listens in {folder}: {files.unsupported or '`make model` brings it'}")
    return files


def spoken(name: Literal["beckett", "two_cities"], folder: Path) -> Path:
    """Return a recording of a person as a WAV file."""
    with zipfile.ZipFile(_speech_wheel()) as wheel:
        path = folder / f"{name}.wav"
        path.write_bytes(wheel.read(f"moonshine_voice/assets/{name}.wav"))
    return path


def voice_note(name: Literal["beckett", "two_cities"], folder: Path) -> bytes:
    """Return the same as messengers send it: opus in ogg, 24 kbit a second."""
    engine = voice_files().engine_folder
    note = folder / f"{name}.ogg"
    argv = [sys.executable, "-c", RECODE, str(spoken(name, folder)), str(note)]
    subprocess.run(argv, env={"PYTHONPATH": str(engine or "")}, check=True, timeout=60)
    return note.read_bytes()


def _speech_wheel() -> Path:
    folder = ROOT / "build" / "wheels"
    found = sorted(folder.glob("moonshine_voice-*.whl"))
    if not found:
        argv = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--only-binary",
            ":all:",
            SPEECH,
            "-d",
            folder,
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=PIP_S, check=False)
        found = sorted(folder.glob("moonshine_voice-*.whl"))
        if not found:
            pytest.skip(f"the recordings cannot be had: {done.stderr.strip()[-200:]}")
    return found[0]
