"""What commands see, by mode and by turn, looked at from inside real commands."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from fermix.agent.sandbox import Sandbox
from fermix.agent.sandbox.walls import private_parts, toolchains
from fermix.agent.turn import Turn
from fermix.errors import Refused
from fermix.home import Home
from fermix.native import confine
from fermix.native.child import run_child
from fermix.trust import Trust
from tests.agent.sandbox.test_sandbox import NOWHERE, Machine, machine, turn_at

__all__ = ["machine"]


async def sees(sandbox: Sandbox, turn: Turn, script: str) -> str:
    confined = sandbox.confined(turn)
    cwd = sandbox.working_dir(turn)
    finished = await run_child(["/bin/sh", "-c", script], cwd=cwd, env=confined.environment, behind=confined.behind)
    return finished.output.decode()


@pytest.mark.parametrize("mode", ["strict", "standard", "open"])
async def test_keys_and_our_own_files_are_closed_in_every_mode(machine: Machine, mode: str) -> None:
    """SBX: a command that stands in an allowed folder reads no key."""
    home, ours = machine.user_home, machine.home
    look = f"ls {ours.root}; cat {home}/.ssh/id {ours.auth} {ours.config} {machine.outside}/other"
    script = f"{look}; echo x >> {ours.auth}"
    seen = await sees(machine.sandbox(mode=mode), turn_at(machine.project), script)

    assert "secret" not in seen
    assert "other\n" not in seen
    assert "auth.json" not in seen.splitlines()
    assert ours.auth.read_text(encoding="utf-8") == "secret"


@pytest.mark.parametrize(
    ("mode", "turn", "works"),
    [
        ("standard", "operator", True),
        ("open", "operator", True),
        ("strict", "operator", False),
        ("standard", "guest", False),
    ],
)
async def test_the_folder_of_the_operator_is_open_where_the_mode_says_so(
    machine: Machine, mode: str, turn: str, works: bool
) -> None:
    trust = Trust.OPERATOR if turn == "operator" else Trust.GUEST
    await sees(machine.sandbox(mode=mode), turn_at(machine.project, trust=trust), f"echo x > {machine.project}/made")

    assert (machine.project / "made").exists() == works


async def test_the_workspace_is_always_open_and_remembers(machine: Machine) -> None:
    sandbox = machine.sandbox()
    await sees(sandbox, NOWHERE, "echo kept > note")

    assert await sees(sandbox, NOWHERE, "cat note") == "kept\n"
    assert (machine.home.workspace / "note").read_text(encoding="utf-8") == "kept\n"


async def test_a_blocked_folder_stays_closed_inside_a_grant(machine: Machine) -> None:
    (machine.outside / "private").mkdir()
    (machine.outside / "private/diary").write_text("dear", encoding="utf-8")
    sandbox = machine.sandbox(allowed_roots=(str(machine.outside),), blocked_roots=(str(machine.outside / "private"),))
    seen = await sees(sandbox, NOWHERE, f"cat {machine.outside}/other {machine.outside}/private/diary")

    assert "other" in seen
    assert "dear" not in seen


async def test_a_grant_inside_a_blocked_folder_stays_closed_to_commands_as_to_tools(machine: Machine) -> None:
    (machine.outside / "private").mkdir()
    (machine.outside / "private/diary").write_text("dear", encoding="utf-8")
    grant = str(machine.outside / "private")
    sandbox = machine.sandbox(allowed_roots=(grant,), blocked_roots=(str(machine.outside),))

    assert "dear" not in await sees(sandbox, NOWHERE, f"cat {grant}/diary")


async def test_a_grant_that_is_not_there_any_more_stops_no_command(machine: Machine) -> None:
    """A disk that is unplugged."""
    (machine.outside / "disk").mkdir()
    sandbox = machine.sandbox(allowed_roots=(str(machine.outside / "disk"),))
    (machine.outside / "disk").rmdir()

    assert await sees(sandbox, NOWHERE, "echo works") == "works\n"


async def test_a_command_can_make_no_folder_for_keys_where_there_is_none(machine: Machine) -> None:
    """Whoever writes ~/.ssh/authorized_keys comes in by the front door."""
    home = machine.user_home
    (home / ".ssh/id").unlink()
    (home / ".ssh").rmdir()
    script = (
        f"mkdir {home}/.ssh; echo key > {home}/.ssh/authorized_keys; mv {home}/.ssh {home}/x; echo made > {home}/made"
    )
    await sees(machine.sandbox(mode="open"), NOWHERE, script)

    assert list((home / ".ssh").iterdir()) == []
    assert (home / "made").exists()


async def test_a_home_of_ours_stays_closed_when_the_folder_above_it_is_renamed(machine: Machine) -> None:
    deep = Home(machine.user_home / "apps/own/fermix")
    deep.prepare()
    deep.auth.write_text("a token", encoding="utf-8")
    settings = machine.sandbox(mode="open").settings
    sandbox = Sandbox(settings, deep, machine.outside, machine.user_home, {"PATH": "/bin"})
    home = machine.user_home
    await sees(sandbox, NOWHERE, f"mv {home}/apps/own {home}/apps/other; mv {home}/apps {home}/moved")
    seen = await sees(sandbox, NOWHERE, f"cat {home}/*/*/fermix/auth.json")

    assert "token" not in seen
    assert deep.auth.exists()


async def test_keys_beside_a_toolchain_are_no_part_of_it(machine: Machine) -> None:
    """Many programs live in ~/.name/bin and keep their service's key, or a socket that runs anything, in ~/.name."""
    tool = machine.user_home / ".tool"
    (tool / "bin").mkdir(parents=True)
    for name, mode in (("version", 0o644), ("credentials.json", 0o600), ("bin/run", 0o755)):
        (tool / name).write_text("#!/bin/sh\necho ran", encoding="utf-8")
        (tool / name).chmod(mode)
    environ = {"PATH": f"{tool}/bin:/usr/bin:/bin"}
    sandbox = Sandbox(machine.sandbox().settings, machine.home, machine.outside, machine.user_home, environ)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tool}/service.sock")
        seen = await sees(sandbox, NOWHERE, f"cd {tool}; run; wc -l version; head -c9 credentials.json")

    assert seen.startswith("ran\n1 version\nhead: cannot open")
    behind = sandbox.confined(NOWHERE).behind
    assert behind is not None
    assert tool / "service.sock" in behind.walls.hide
    (tool / "bin").chmod(0o700)
    assert private_parts(tool) == []


async def test_no_command_of_root_reads_the_passwords_of_the_system(machine: Machine) -> None:
    seen = await sees(machine.sandbox(), NOWHERE, "cat /etc/shadow; head -c5 /etc/passwd")

    assert seen.endswith("root:")
    assert "::" not in seen


async def test_a_temporary_folder_lasts_for_one_turn(machine: Machine) -> None:
    sandbox = machine.sandbox()
    later = replace(NOWHERE, id="t2")
    await sees(sandbox, NOWHERE, 'echo mine > "$TMPDIR/note"')

    assert await sees(sandbox, NOWHERE, "cat /tmp/note") == "mine\n"
    assert "mine" not in await sees(sandbox, later, "cat /tmp/note")
    remove = sandbox.forget(NOWHERE)
    assert remove is not None
    remove()
    assert sandbox.forget(NOWHERE) is None
    assert "mine" not in await sees(sandbox, NOWHERE, "cat /tmp/note")


def test_what_the_commands_of_a_killed_daemon_left_goes_when_the_next_one_starts(machine: Machine) -> None:
    left = machine.home.run / "commands/old-turn/note"
    left.parent.mkdir(parents=True)
    left.write_text("left", encoding="utf-8")

    machine.sandbox().prepare()

    assert list(machine.home.run.glob("commands/*")) == []


@pytest.mark.parametrize(("network", "trust", "closed"), [(True, "guest", True), (False, "operator", True)])
async def test_the_network_is_closed_to_others_and_to_all_where_the_owner_says_so(
    machine: Machine, network: bool, trust: str, closed: bool
) -> None:
    turn = turn_at(None, trust=Trust(trust))
    confined = machine.sandbox(network=network).confined(turn)

    assert confined.behind is not None
    assert confined.behind.walls.network is not closed


async def test_strict_mode_runs_nothing_where_nothing_holds_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel without Landlock and namespaces: told, and in strict mode refused."""
    monkeypatch.setattr(confine, "PROGRAM", Path("/nonexistent/confine"))

    with pytest.raises(Refused, match="cannot be confined"):
        machine.sandbox(mode="strict").confined(NOWHERE)
    with pytest.raises(Refused, match="cannot be confined"):
        machine.sandbox(network=False).confined(NOWHERE)
    sandbox = machine.sandbox()
    assert sandbox.confined(NOWHERE).behind is None
    assert sandbox.walls().startswith("not confined: the command cannot be confined: program")


def test_a_toolchain_in_the_home_is_its_whole_folder_and_never_the_home(tmp_path: Path) -> None:
    names = (".cargo/bin", ".pyenv/shims", ".local/bin", "bin", "tools", ".nvm/versions/node/v20/bin")
    search_path = os.pathsep.join((*(str(tmp_path / name) for name in names), "/", str(tmp_path), "relative"))

    found = [path.relative_to(tmp_path).as_posix() for path in toolchains(search_path, tmp_path)]

    assert found == [
        ".cargo", ".pyenv", ".local/bin", ".local/lib", ".local/share/uv", ".local/share/pipx", ".local/share/mise",
        "bin", "tools", ".nvm/versions/node/v20",
    ]  # fmt: skip


async def test_programs_that_people_use_work_behind_the_walls(machine: Machine) -> None:
    (machine.user_home / ".gitconfig").write_text("[user]\nname = Ann\nemail = ann@localhost\n", encoding="utf-8")
    (machine.user_home / ".ssh/config").write_text("secret", encoding="utf-8")
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(machine.user_home)}
    sandbox = Sandbox(machine.sandbox().settings, machine.home, machine.outside, machine.user_home, environ)
    script = "git init -q . && git commit -q --allow-empty -m one && git log --format='%an: %s'"

    if shutil.which("npm"):
        about = '{"name": "one", "version": "1.0.0"}'
        pack = f"echo '{about}' > package.json; npm pack --silent && npm install --silent ./one*.tgz"
        assert (await sees(sandbox, NOWHERE, f"mkdir npm; cd npm; {pack}; ls node_modules")).endswith("one\n")
    assert await sees(sandbox, NOWHERE, f"{script}; date +%Y | wc -c; mktemp | cut -c1-5") == "Ann: one\n5\n/tmp/\n"
