"""How a download is told of where standard output is no terminal."""

from __future__ import annotations

import pytest

from fermix.cli.progress import show_progress
from fermix.events import DownloadProgress


def test_a_small_file_is_not_told_to_be_empty(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress() as report:
        report(DownloadProgress("config.json", 2_317, 2_317, "running"))
        report(DownloadProgress("config.json", 2_317, 2_317, "done"))
        report(DownloadProgress("model.gguf", 49_140_006, 491_400_064, "running"))

    lines = ["config.json: 100 % of 0.1 MB", "config.json: done", "model.gguf: 9 % of 491 MB"]
    assert capsys.readouterr().out.splitlines() == lines
