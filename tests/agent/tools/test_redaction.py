"""What commands print of secrets that they know, and what is left of it where their output is cut."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from fermix.agent.model import JsonValue, ToolResult
from fermix.agent.sandbox import Sandbox, SandboxSettings
from tests.agent.tools.conftest import Toolbox

SECRET = "canary/7+f&9=Zq-helped"
SPELLINGS = {
    "plain": f"printf %s '{SECRET}'",
    "twice": f"printf '%s%s' '{SECRET}' '{SECRET}'",
    "in two writes": f"printf %s '{SECRET[:9]}'; sleep 0.05; printf %s '{SECRET[9:]}'",
    "base64": f"printf %s '{base64.b64encode(SECRET.encode()).decode()}'",
    "base64 behind others": f"printf %s '{base64.b64encode(b'u:' + SECRET.encode()).decode()}'",
    "in a URL": f"printf %s '{quote(SECRET, safe='')}'",
}


@pytest.mark.parametrize("command", SPELLINGS.values(), ids=SPELLINGS)
async def test_a_value_never_comes_back(toolbox: Toolbox, tmp_path: Path, command: str) -> None:
    """R-48: plain, encoded, in parts; the command is written out, so that no variable hides anything."""
    result = await run(toolbox, tmp_path, command)

    assert SECRET[:9] not in result.text
    assert "[redacted]" in result.text


@pytest.mark.parametrize("kept", range(1, len(SECRET)))
async def test_a_cut_leaves_no_half_of_a_value(toolbox: Toolbox, tmp_path: Path, kept: int) -> None:
    """R-48: where the output is cut, as much of the value is left as says nothing."""
    fill = 1_048_576 - kept
    result = await run(toolbox, tmp_path, f"head -c {fill} /dev/zero | tr '\\0' x; printf %s '{SECRET}'; yes")

    assert "stopped after 1048576 bytes" in result.text
    assert SECRET[:4] not in result.text


async def test_a_stopped_command_leaves_no_half_of_a_value(toolbox: Toolbox, tmp_path: Path) -> None:
    result = await run(toolbox, tmp_path, f"printf %s '{SECRET[:11]}'; sleep 60", timeout_ms=300)

    assert result.text.startswith("[redacted]\n[stopped after")


@pytest.mark.parametrize(
    ("name", "hidden"),
    [("GH_TOKEN", True), ("tickets_password", True), ("DATABASE_URL", True), ("JAVA_HOME", False), ("TZ", False)],
)
@pytest.mark.parametrize("mode", ["all", "selected"])
async def test_a_variable_called_like_a_secret_is_hidden(
    toolbox: Toolbox, tmp_path: Path, name: str, hidden: bool, mode: str
) -> None:
    """R-48: also where it comes from the daemon's environment; a path or a time zone is no secret."""
    value = f"canary-{name}-of-the-environment"
    environ = {"PATH": "/usr/bin:/bin", name: value}
    settings = SandboxSettings.model_validate({"env": {"mode": mode, "allow": () if mode == "all" else (name,)}})
    sandbox = Sandbox(settings, toolbox.home, tmp_path, tmp_path / "user", environ)
    tools = replace(toolbox, deps=replace(toolbox.deps, sandbox=sandbox))

    shown = (await tools.call("shell", command=f'echo "${name}"; echo {value}')).text
    assert shown == ("[redacted]\n[redacted]\n" if hidden else f"{value}\n{value}\n")


async def run(toolbox: Toolbox, tmp_path: Path, command: str, **more: JsonValue) -> ToolResult:
    """Run a command with the value allowed to it."""
    helper = tmp_path / "helper"
    helper.write_text(f"#!/bin/sh\nprintf %s '{SECRET}'\n", encoding="utf-8")
    helper.chmod(0o700)
    env = {"allow": ("HELPED",), "HELPED": {"command": str(helper)}}
    toolbox.deps.sandbox.use(SandboxSettings.model_validate({"env": env}))
    return await toolbox.call("shell", command=command, **more)
