"""Where the real embedded model lies for tests that need it: FERMIX_TEST_MODEL, else build/models/ of the repo.

Its engine is an installed package for the source, and a wheel in build/wheels/ for the frozen program.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from fermix.fetch import load_downloads

ROOT = Path(__file__).parents[2]
PIP_S = 300


def real_model() -> Path:
    """Return the file; skips the test, with the command that brings it, when it or its engine is not here."""
    path = model_file()
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the engine is not installed; `pip install -e .[local]` brings it")
    return path


def model_file() -> Path:
    """Return the model's file alone; skips the test when it is not here."""
    artifact = load_downloads().artifacts["model"]
    stated = os.environ.get("FERMIX_TEST_MODEL")
    path = Path(stated) if stated else ROOT / "build" / "models" / artifact.file
    if not path.exists() or path.stat().st_size != artifact.size_bytes:
        pytest.skip(f"no real model at {path}; `make model` brings it")
    return path


def engine_wheel() -> Path:
    """Return the engine's wheel, which the package index gives where its own address cannot be reached."""
    artifact = load_downloads().artifacts[f"engine-{sys.platform}-{platform.machine().lower()}"]
    path = ROOT / "build" / "wheels" / artifact.file
    if not path.exists():
        wanted = "==".join(artifact.file.split("-")[:2])
        argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", wanted]
        done = subprocess.run([*argv, "-d", path.parent], capture_output=True, text=True, timeout=PIP_S, check=False)
        if not path.exists():
            pytest.skip(f"the engine's wheel cannot be had: {done.stderr.strip()[-200:]}")
    return path
