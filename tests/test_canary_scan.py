from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import canary_scan
from tests.canary_scan import KEY, MAY_HOLD, TOKEN, told_by_files, told_by_processes

REPO = Path(__file__).parent.parent
LEAK = """
from tests.canary_scan import {secret}

def test_leaves_it(tmp_path):
    (tmp_path / "{name}").write_text("the key is " + {secret})
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
    watched = canary_scan.told_by_processes
    argued = [sys.executable, "-c", "import sys; sys.stdin.read()", TOKEN[::-1]]
    waits = "import sys; print(1, flush=True); sys.stdin.read()"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {waits!r}])"
    needles, canary_scan.NEEDLES = canary_scan.NEEDLES, (TOKEN[::-1].encode(),)
    try:
        with subprocess.Popen(argued, stdin=subprocess.PIPE) as process:
            told = [*watched()]
            process.communicate()
        assert any("arguments" in one for one in told)
        environ = {**os.environ, "COMPANY_TOKEN": TOKEN[::-1]}
        daemon = [sys.executable, "-c", child, "--daemon"]
        with subprocess.Popen(daemon, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            told = [*told_by_processes()]
            process.communicate()
        assert any("child of a daemon" in one for one in told)
    finally:
        canary_scan.NEEDLES = needles


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("fermix.log", 1), ("config.toml", 0)])
def test_a_run_that_leaves_a_secret_behind_fails(tmp_path: Path, name: str, code: int) -> None:
    """R-45, R-48: the scan must be able to fail."""
    (tmp_path / "test_leak.py").write_text(LEAK.format(secret="KEY", name=name), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.canary_scan", "--rootdir", str(tmp_path), "-c", "/dev/null",
         "--basetemp", str(tmp_path / "base"), "test_leak.py"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPO)}, capture_output=True, text=True, check=False,
        timeout=50,
    )  # fmt: skip

    assert (done.returncode, "SECRET FOUND" in done.stdout) == (code, bool(code)), done.stdout
