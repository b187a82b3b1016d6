"""The frozen program's files are looked after. tests/frozen does the same with the real file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fermix.daemon.unpacked import CHECK_EVERY_S, UnpackedFiles
from fermix.errors import Unavailable
from tests.fakes.clock import ManualClock

ENVIRON = {"HOME": "/h", "XDG_CACHE_HOME": "/cache", "OPENAI_API_KEY": "secret", "PATH": "/bin"}


def launcher(folder: Path, script: str) -> str:
    file = folder / "fermix"
    file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    file.chmod(0o755)
    return str(file)


async def test_the_launcher_is_asked_at_start_and_every_ten_minutes(tmp_path: Path) -> None:
    """PKG-02: it checks and unpacks what is gone, where this daemon's files lie, and runs nothing else."""
    asked = tmp_path / "asked"
    clock, up = ManualClock(), asyncio.Event()
    line = f'echo "$HOME $XDG_CACHE_HOME $FERMIX_VERIFY_ONLY $OPENAI_API_KEY." >> {asked}'
    service = UnpackedFiles([launcher(tmp_path, line)], ENVIRON, clock)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(service.run(up.set))
        await up.wait()
        at_start = asked.read_text(encoding="utf-8")
        for _ in range(2):
            await clock.until_asleep()
            clock.advance(CHECK_EVERY_S)
        await clock.until_asleep()
        task.cancel()

    assert at_start == "/h /cache 1 .\n"
    assert asked.read_text(encoding="utf-8") == "/h /cache 1 .\n" * 3
    assert clock.sleeps == [600.0] * 3


async def test_a_full_disk_is_said_in_the_launchers_words(tmp_path: Path) -> None:
    """The supervisor shows it and tries again; the daemon goes on with what it has imported."""
    service = UnpackedFiles([launcher(tmp_path, "echo no space left; exit 126")], ENVIRON, ManualClock())

    with pytest.raises(Unavailable, match="files are gone: no space left"):
        await service.run(lambda: pytest.fail("it is not up"))


async def test_a_program_file_that_was_removed_is_said(tmp_path: Path) -> None:
    service = UnpackedFiles([str(tmp_path / "none")], ENVIRON, ManualClock())

    with pytest.raises(Unavailable, match="none: No such file"):
        await service.run(lambda: pytest.fail("it is not up"))
