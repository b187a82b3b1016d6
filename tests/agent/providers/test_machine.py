"""What the machine offers a local model."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermix.agent.providers.machine import check_memory, default_threads
from fermix.errors import NeedsOperator


def test_too_little_memory_is_refused_with_both_figures(tmp_path: Path) -> None:
    """Better a sentence than a machine that swaps or a child that the kernel kills."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:       8000000 kB\nMemAvailable:    512000 kB\n", encoding="ascii")

    check_memory(500 << 20, meminfo)
    with pytest.raises(NeedsOperator, match=r"needs 720 MiB of memory, 500 MiB are free.*fermix setup"):
        check_memory(720 << 20, meminfo)


def test_machine_that_does_not_tell_its_memory_is_not_refused(tmp_path: Path) -> None:
    """macOS has no such file."""
    check_memory(1 << 60, tmp_path / "absent")


def test_threads_are_at_least_one_and_at_most_eight() -> None:
    assert 1 <= default_threads() <= 8
