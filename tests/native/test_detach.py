"""A detached program outlives its starter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fermix.native.detach import start_detached
from fermix.native.program import OWN_FOLDER, own_program, own_variables

STARTER = """
import sys
from pathlib import Path
from fermix.native.detach import start_detached
script = "echo up; echo oops >&2; readlink /proc/self/fd/0; ps -o sid= -p $$; read x < " + sys.argv[1]
print(start_detached(["/bin/sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, output=Path(sys.argv[2])))
"""


def test_it_goes_on_after_its_starter_and_writes_to_its_file(tmp_path: Path) -> None:
    gate, output = tmp_path / "gate", tmp_path / "output"
    os.mkfifo(gate)
    started = subprocess.run(
        [sys.executable, "-c", STARTER, str(gate), str(output)], cwd=OWN_FOLDER, capture_output=True, timeout=5
    )
    pid = int(started.stdout)

    gate.write_text("go\n", encoding="utf-8")  # waits until the other side reads, so it lives

    lines = output.read_text(encoding="utf-8").split()
    assert lines == ["up", "oops", "/dev/null", str(pid)]
    assert output.stat().st_mode & 0o777 == 0o600


def test_a_missing_program_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        start_detached(["/no/such/program"], env={}, output=tmp_path / "output")


def test_a_detached_program_is_not_taken_for_an_orphan(tmp_path: Path) -> None:
    """The screen starts a daemon, then runs a command: the daemon must stay."""
    script = f"""
import asyncio, os, sys
from pathlib import Path
from fermix.native.child import run_child
from fermix.native.detach import start_detached

async def main():
    command = asyncio.ensure_future(run_child(["sh", "-c", "read x"], cwd=Path("/"), env={{}}, stdin=b"x\\n"))
    pid = start_detached(["/bin/sleep", "600"], env={{}}, output=Path({str(tmp_path / "output")!r}))
    await command
    print(pid)
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=OWN_FOLDER, capture_output=True, text=True, timeout=10)
    pid = int(done.stdout)

    os.kill(pid, 0)  # raises when it is gone
    os.kill(pid, signal.SIGKILL)


def test_the_program_itself_can_be_started_again(tmp_path: Path) -> None:
    """From any folder, installed or not, and never what lies there. A leftover of a frozen Fermix in the environment
    makes no program from source start that one.
    """
    argv = own_program({"FERMIX_EXE": "/opt/fermix"})
    (tmp_path / "json.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    environ = own_variables({"PYTHONPATH": f":.:{tmp_path.name}"})

    done = subprocess.run(
        [*argv, "version"], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=10, check=False
    )

    assert (done.stdout.split(" ")[0], done.stderr) == ("fermix", "")


def test_folders_given_to_the_interpreter_by_their_whole_path_stay() -> None:
    """Where a checkout finds what is not installed; all other entries would mean the current folder."""
    assert own_variables({"PYTHONPATH": ":/opt/libs:.:lib"}) == {"PYTHONPATH": f"/opt/libs:{OWN_FOLDER}"}


def test_the_frozen_program_is_started_again_by_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never by the unpacked program: that one may be gone."""
    monkeypatch.setattr("fermix.native.program.FROZEN", True)

    assert own_program({"FERMIX_EXE": "/opt/fermix"}) == ("/opt/fermix",)
    assert own_variables({"PYTHONPATH": "/opt/libs"}) == {}
