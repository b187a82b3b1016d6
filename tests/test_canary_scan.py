from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.canary_scan import KEY, MAY_HOLD, TOKEN, told_by_files, told_by_processes

REPO = Path(__file__).parent.parent
LEAK = """
from tests.canary_scan import {secret}

def test_leaves_it(tmp_path):
    (tmp_path / "{name}").write_text("the key is " + {secret})
"""
TELL = """
import subprocess, sys
from tests.canary_scan import LOOK_S, TOKEN

def test_tells_it():
    subprocess.run([sys.executable, "-c", f"import time; time.sleep({10 * LOOK_S})", TOKEN], check=True)
"""


def test_a_secret_is_found_in_any_file_but_where_it_belongs(tmp_path: Path) -> None:
    for name in ("logs/fermix.log", "traces/t.jsonl", "memory.db", "crash", *MAY_HOLD):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"\0" + KEY.encode())

    found = {Path(told).name for told in told_by_files(tmp_path)}
    for name in found:
        next(tmp_path.rglob(name)).unlink()  # or this run itself would fail

    assert found == {"fermix.log", "t.jsonl", "memory.db", "crash"}


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
def test_a_secret_in_arguments_or_in_a_daemons_child_is_found() -> None:
    secret = TOKEN[::-1]
    waits = "import sys; print(1, flush=True); sys.stdin.read()"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waits!r}])"

    argued = told_while([sys.executable, "-c", waits, secret], {}, secret)
    given = told_while([sys.executable, "-c", child, "--daemon"], {"COMPANY_TOKEN": secret}, secret)

    assert any("arguments" in one for one in argued)
    assert any("child of a daemon" in one for one in given)


def told_while(argv: list[str], extra: dict[str, str], secret: str) -> list[str]:
    """What is found while a program runs that says so once it is up."""
    environ = {**os.environ, **extra}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        told = [*told_by_processes((secret.encode(),))]
        process.communicate()
    return told


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("fermix.log", 1), ("config.toml", 0)])
def test_a_run_that_leaves_a_secret_behind_fails(tmp_path: Path, name: str, code: int) -> None:
    """R-45, R-48: the scan must be able to fail."""
    done = run_of(LEAK.format(secret="KEY", name=name), tmp_path)

    assert (done.returncode, "SECRET FOUND" in done.stdout) == (code, bool(code)), done.stdout


@pytest.mark.slow
def test_a_run_in_which_a_program_got_a_secret_in_its_arguments_fails(tmp_path: Path) -> None:
    done = run_of(TELL, tmp_path)

    assert done.returncode == 1, done.stdout
    assert "SECRET FOUND in the arguments of a process" in done.stdout


def run_of(test: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run one test file under the scan, as a whole run of its own."""
    (folder / "test_leak.py").write_text(test, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.canary_scan", "--rootdir", str(folder), "-c", "/dev/null",
         "--basetemp", str(folder / "base"), "test_leak.py"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(REPO)}, capture_output=True, text=True, check=False,
        timeout=50,
    )  # fmt: skip
