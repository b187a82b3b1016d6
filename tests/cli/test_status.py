"""`fermix status` into a pipe: plain lines that a program can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from fermix import __version__
from fermix.cli.main import main
from fermix.protocol.methods import CommandWalls, Status
from tests.fakes.peer import answering, result

CONFLICT = "cannot listen on 127.0.0.1:4030: Address already in use: free the port or set [fermix_web] port"
SILENT = "no sign of life yet; a message sent there now may not be read"
WALLS: CommandWalls = {
    "told": "confined: the kernel shows them nothing but their folders",
    "form": "view",
    "offline": True,
    "landlock": 7,
    "missing": [],
}


def status(home: Path) -> Status:
    return {
        "overall": "degraded",
        "version": __version__,
        "pid": 4711,
        "uptime_s": 61.0,
        "home": str(home),
        "http": "not listening",
        "model": "ollama/[m]",
        "providers": [
            {
                "provider": "ollama",
                "model": "[m]",
                "key_from": "none",
                "primary": True,
                "usable": True,
                "problem": "",
            }
        ],
        "local_model": {
            "state": "absent",
            "name": "tiny",
            "total_bytes": 0,
            "done_bytes": 0,
            "detail": "",
            "primary": False,
        },
        "services": [
            {"service": "database", "state": "up", "reason": ""},
            {"service": "http", "state": "down", "reason": CONFLICT},
            {"service": "channel telegram", "state": "down", "reason": SILENT},
        ],
        "channels": [{"channel": "telegram", "state": "degraded", "reason": SILENT}],
        "environment": [],
        "turns_running": 0,
        "commands": WALLS,
        "memory_bytes": 48_200_000,
        "open_files": 31,
        "turns_waiting": 0,
        "failures": [f"http: {CONFLICT}", f"channel telegram: {SILENT}"],
    }


def test_a_pipe_gets_plain_lines_whole_and_each_problem_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 3, health of a channel: one that is not read is told with the reason."""
    monkeypatch.setenv("FERMIX_HOME", str(tmp_path))
    with answering(
        tmp_path / "daemon.sock",
        lambda request: result(request, **(status(tmp_path) if request["method"] == "status" else {"pid": 4711})),
    ):
        assert main(["status"]) == 1

    assert capsys.readouterr().out.splitlines() == [
        "fermix degraded",
        f"daemon: pid 4711, version {__version__}, up 1 min 1 s",
        f"home: {tmp_path}",
        "http: not listening",
        "answers with: ollama/[m]",
        "provider: ollama/[m]: usable (key: none, primary)",
        "local model: tiny: absent",
        "service: database up",
        "service: http down",
        "service: channel telegram down",
        "commands: confined: the kernel shows them nothing but their folders",
        "memory: 48 MB, 31 open files",
        "turns: 0 running, 0 waiting",
        f"missing: http: {CONFLICT}",
        f"missing: channel telegram: {SILENT}",
    ]
