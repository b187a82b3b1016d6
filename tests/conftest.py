"""What every test gets: a home of its own, and no way to the owner's."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.canary_scan import pytest_sessionfinish, pytest_sessionstart, pytest_terminal_summary

__all__ = ["pytest_sessionfinish", "pytest_sessionstart", "pytest_terminal_summary"]

# A run in the background starts with these ignored, and programs that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction] - pytest
    """FERMIX_HOME and HOME are temporary; no key of the machine's environment is seen."""
    monkeypatch.setenv("FERMIX_HOME", str(tmp_path / "fermix"))
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    (tmp_path / "user").mkdir()
    for name in (
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "XAI_API_KEY",
        "OPENROUTER_API_KEY",
        "MISTRAL_API_KEY",
        "DEEPGRAM_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)
