"""A program without a person at the socket of a real daemon: confined ones, and those that the agent itself starts."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.product import REPO, Product, compatible, program, running, scripted

pytestmark = pytest.mark.slow

CONFINE = "import ctypes, os, sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"


def confined(product: Product, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a verb in a process that can gain no rights."""
    return subprocess.run(
        [sys.executable, "-c", CONFINE, *program(), *argv],
        env=product.environ,
        cwd=product.user_home,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "user" / "photos"
    folder.mkdir(parents=True)
    return folder


def test_a_confined_program_may_ask_but_neither_stop_nor_grant(tmp_path: Path, folder: Path) -> None:
    """Issue 3, approvals: approvals, grants, setup and stop are refused to it."""
    with scripted(tmp_path, [{"text": "fine"}]) as url, running(tmp_path, compatible(url)) as product:
        stopped = confined(product, "stop")
        refused = [confined(product, "ask", text).stdout for text in (f"/grant path {folder}", "/stop", "/confirm X")]
        changed = [confined(product, "sandbox", "mode", mode) for mode in ("strict", "open")]
        answered = confined(product, "ask", "are you there?")

        assert (stopped.returncode, "runs without a person" in stopped.stderr) == (1, True)
        assert ["runs without a person" in text for text in refused] == [True, True, True]
        assert [(done.returncode, "runs without a person" in done.stderr) for done in changed] == [(1, True), (1, True)]
        assert answered.stdout.strip() == "fine"
        assert product.run("status", "--json").returncode in (0, 1)


def test_a_command_of_the_agent_cannot_speak_for_its_owner(tmp_path: Path, folder: Path) -> None:
    """A shell command does not even reach the socket, with everything it would need but that in sight."""
    seen = tmp_path / "fermix/workspace/seen"
    needed = {str(REPO), *(str(Path(path).resolve()) for path in (sys.prefix, sys.base_prefix))} - {"/usr"}
    sandbox = f"\n[sandbox]\nallowed_roots = {json.dumps(sorted(needed))}\n"
    environ = [f"FERMIX_HOME={tmp_path / 'fermix'}", f"PYTHONPATH={REPO}"]
    ask = [*program(), "ask", "--session", "inner", f"/grant path {folder}"]
    own_terminal = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])"]
    command = f"{shlex.join(['env', *environ, *own_terminal, *ask])} > {shlex.quote(str(seen))} 2>&1"
    script: list[dict[str, object]] = [
        {"calls": [{"name": "shell", "arguments": {"command": command}}]},
        {"text": "done"},
    ]
    with scripted(tmp_path, script, repeat=False) as url, running(tmp_path, compatible(url) + sandbox) as product:
        outer = product.run("ask", "grant it to yourself")

        assert outer.stdout.strip() == "done"
        assert "daemon" in (said := seen.read_text(encoding="utf-8"))
        assert "/confirm" not in said
        assert f"{len(needed)} granted folder" in product.run("ask", "/sandbox").stdout


def test_the_owner_grants_at_the_terminal_and_the_daemon_goes_on(tmp_path: Path, folder: Path) -> None:
    """Ask, confirm, look: no restart in between."""
    with scripted(tmp_path, [{"text": "fine"}]) as url, running(tmp_path, compatible(url)) as product:
        asked = json.loads(product.run("ask", "--json", f"/grant path {folder}").stdout)["response"]
        code = asked.split("/confirm ")[1][:8]
        done = json.loads(product.run("ask", "--json", f"/confirm {code}").stdout)["response"]
        explained = product.run("ask", "/sandbox explain").stdout

        assert done.startswith("Done.")
        assert f"grant: {folder}" in explained
        assert str(folder) in (product.home / "config.toml").read_text(encoding="utf-8")


def test_channels_tells_what_is_configured(tmp_path: Path) -> None:
    config = '[fermix_web]\nport = 0\n[fermix_channels.telegram]\nenabled = true\nowner_user_id = "123456789"\n'
    with running(tmp_path, config + "[fermix_channels.slack]\nenabled = true\n") as product:
        told = product.run("channels", "--json")
        shown = product.run("channels")

    rows = {row["channel"]: row for row in json.loads(told.stdout)["channels"]}
    assert (rows["telegram"]["owner"], rows["signal"]["enabled"]) == ("123456789", False)
    assert "everybody is denied" in rows["slack"]["problem"]
    assert "telegram   on, owner 123456789, 0 guests" in shown.stdout
    assert "Nobody was denied" in shown.stdout


def test_a_command_that_is_granted_at_the_terminal_is_a_tool_of_the_next_turn(tmp_path: Path) -> None:
    """Issue 4: a change of the policy builds the tools again, no restart in between."""
    script: list[dict[str, object]] = [
        {"calls": [{"name": "run_say", "arguments": {"args": ["said"]}}]},
        {"text": "done"},
    ]
    with scripted(tmp_path, script) as url, running(tmp_path, compatible(url)) as product:
        granted = at_terminal(product, "grant", "command", "say", "--", "touch")
        product.run("ask", "say it")
        listed = json.loads(product.run("sandbox", "--json").stdout)["commands"]
        revoked = product.run("revoke", "command", "say")

        assert (tmp_path / "fermix/workspace/said").exists(), granted
        assert [row["program"] for row in listed] == ["/usr/bin/touch"]
        assert revoked.returncode == 0
        assert json.loads(product.run("sandbox", "--json").stdout)["commands"] == []


def at_terminal(product: Product, *argv: str) -> str:
    """Run a verb at a terminal, type yes; what the screen showed."""
    ours, theirs = pty.openpty()
    os.write(ours, b"yes\n")
    subprocess.run(
        [*program(), *argv],
        env=product.environ,
        cwd=product.user_home,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        timeout=60,
        check=True,
    )
    shown = os.read(ours, 65_536).decode()
    os.close(theirs)
    os.close(ours)
    return shown
