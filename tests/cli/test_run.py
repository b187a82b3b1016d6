"""What the daemon asks of the system before it serves."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator

import pytest

from fermix.cli.main import main
from fermix.cli.verbs.run import MOST_FILES, allow_files


@pytest.fixture
def hard() -> Iterator[int]:
    """The most that may be asked for; what was granted is as before afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_daemon_may_open_more_files_than_a_shell_grants(hard: int) -> None:
    """Issue "The gateway", numbers: a thousand conversations at once, each with its connection to a provider."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))

    allow_files()

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(MOST_FILES, hard) if hard > 0 else MOST_FILES, hard)


def test_what_was_granted_already_is_kept(hard: int) -> None:
    granted = MOST_FILES + 1 if hard < 0 else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))

    allow_files()

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (granted, hard)


def test_a_daemon_collects_garbage_although_its_start_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERMIX_HOME", "not/absolute")

    assert main(["--daemon"]) == 1

    assert gc.isenabled()
