"""Where the real embedded model lies for tests that need it: FERMIX_TEST_MODEL, else build/models/ of the repo."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from fermix.fetch import load_downloads

ROOT = Path(__file__).parents[2]


def real_model() -> Path:
    """Return the file; skips the test, with the command that brings it, when it or its engine is not here."""
    artifact = load_downloads().artifacts["model"]
    stated = os.environ.get("FERMIX_TEST_MODEL")
    path = Path(stated) if stated else ROOT / "build" / "models" / artifact.file
    if not path.exists() or path.stat().st_size != artifact.size_bytes:
        pytest.skip(f"no real model at {path}; `make model` brings it")
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("the engine is not installed; `pip install -e .[local]` brings it")
    return path
