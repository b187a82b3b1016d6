"""Which folders are open to whom, on a real tree of files."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from fermix.agent.sandbox import Root, Sandbox, SandboxSettings
from fermix.agent.turn import Turn
from fermix.errors import ConfigError, OutsideSandbox
from fermix.home import Home
from fermix.message import LocalOrigin
from fermix.trust import Trust
from tests.fakes.turns import make_turn
from tests.requirements import covers


@dataclass(frozen=True)
class Machine:
    """A user's home with a Fermix home in it, a project, and a world outside."""

    top: Path

    @property
    def user_home(self) -> Path:
        return self.top / "home/ann"

    @property
    def home(self) -> Home:
        return Home(self.user_home / ".fermix")

    @property
    def project(self) -> Path:
        return self.user_home / "project"

    @property
    def outside(self) -> Path:
        return self.top / "srv"

    def sandbox(self, *, launch_dir: Path | None = None, **settings: object) -> Sandbox:
        chosen = SandboxSettings.model_validate(settings)
        return Sandbox(chosen, self.home, launch_dir or self.outside, self.user_home, {"PATH": "/bin", "KEY": "k"})


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    for folder in (machine.project, machine.outside, machine.user_home / ".ssh"):
        folder.mkdir(parents=True)
    machine.home.prepare()
    (machine.user_home / ".ssh/id").write_text("secret", encoding="utf-8")
    (machine.outside / "other").write_text("other", encoding="utf-8")
    machine.home.auth.write_text("secret", encoding="utf-8")
    return machine


def turn_at(cwd: Path | None, *, trust: Trust = Trust.OPERATOR, channel: str = "cli") -> Turn:
    turn = make_turn(trust=trust)
    origin = None if cwd is None else LocalOrigin(cwd)
    return replace(turn, message=replace(turn.message, channel=channel, origin=origin))


NOWHERE = turn_at(None)


def sources(sandbox: Sandbox, turn: Turn) -> list[str]:
    return [root.source for root in sandbox.roots_for(turn)]


@covers("sandbox.workspace.floor")
@pytest.mark.parametrize("mode", ["strict", "standard", "open"])
def test_the_workspace_is_open_in_every_mode_and_the_default_place(machine: Machine, mode: str) -> None:
    sandbox = machine.sandbox(mode=mode)

    assert sandbox.roots_for(NOWHERE)[0] == Root(machine.home.workspace, "workspace")
    assert sandbox.working_dir(NOWHERE) == machine.home.workspace
    assert sandbox.find(NOWHERE, "a.txt").path == machine.home.workspace / "a.txt"


@covers("sandbox.cwd.local-operator", "sandbox.cwd.standard-mode")
def test_an_operator_at_the_machine_brings_a_folder(machine: Machine) -> None:
    sandbox = machine.sandbox()
    turn = turn_at(machine.project)

    assert sandbox.roots_for(turn)[1:] == (Root(machine.project, "request"),)
    assert sandbox.working_dir(turn) == machine.project


@covers("sandbox.cwd.local-operator", "sandbox.guest.roots")
@pytest.mark.parametrize(
    ("trust", "channel"), [(Trust.GUEST, "cli"), (Trust.OPERATOR, "telegram"), (Trust.GUEST, "slack")]
)
def test_nobody_else_brings_a_folder(machine: Machine, trust: Trust, channel: str) -> None:
    sandbox = machine.sandbox(allowed_roots=(str(machine.outside),))
    turn = turn_at(machine.project, trust=trust, channel=channel)

    assert sources(sandbox, turn) == ["workspace", "grant"]
    assert sandbox.working_dir(turn) == machine.home.workspace


@covers("sandbox.cwd.real-inside-home")
def test_only_a_real_folder_strictly_inside_the_real_home_counts(machine: Machine) -> None:
    sandbox = machine.sandbox()
    (machine.user_home / "way-out").symlink_to(machine.outside)
    (machine.user_home / "file").touch()
    refused = ["way-out", "", "..", "missing", "file", ".ssh", ".fermix/logs"]

    for name in refused:
        turn = turn_at(machine.user_home / name)
        assert (name, ["workspace"]) == (name, sources(sandbox, turn))
        assert sandbox.working_dir(turn) == machine.home.workspace


def test_a_link_into_the_home_is_judged_by_where_it_leads(machine: Machine) -> None:
    (machine.outside / "way-in").symlink_to(machine.project)

    roots = machine.sandbox().roots_for(turn_at(machine.outside / "way-in"))

    assert roots[1:] == (Root(machine.project, "request"),)


def test_strict_mode_takes_no_folder_but_grants(machine: Machine) -> None:
    sandbox = machine.sandbox(mode="strict", launch_dir=machine.project, allowed_roots=(str(machine.outside),))

    assert sources(sandbox, turn_at(machine.project)) == ["workspace", "grant"]


@covers("sandbox.launch-folder", "sandbox.guest.roots")
def test_the_folder_the_daemon_was_started_in_counts_inside_the_home(machine: Machine) -> None:
    guest = turn_at(None, trust=Trust.GUEST)

    assert sources(machine.sandbox(launch_dir=machine.project), guest) == ["workspace", "launch"]
    assert sources(machine.sandbox(launch_dir=machine.user_home), guest) == ["workspace"]
    assert sources(machine.sandbox(launch_dir=machine.outside), guest) == ["workspace"]


@covers("sandbox.grants.roots")
def test_a_grant_opens_its_folder_and_a_block_closes_it_again(machine: Machine) -> None:
    closed = machine.outside / "closed"
    closed.mkdir()
    sandbox = machine.sandbox(allowed_roots=(str(machine.outside),), blocked_roots=(str(closed),))

    assert sandbox.find(NOWHERE, str(machine.outside / "other")).path == machine.outside / "other"
    with pytest.raises(OutsideSandbox, match="blocked"):
        sandbox.find(NOWHERE, str(closed / "x"))


@pytest.mark.parametrize("name", ["", "home", "home/ann", "home/ann/.ssh", "home/ann/.ssh/deep", "home/ann/.fermix"])
def test_some_folders_are_never_granted(machine: Machine, name: str) -> None:
    with pytest.raises(ConfigError, match=r"sandbox\.allowed_roots: .* must not be granted"):
        machine.sandbox(allowed_roots=(str(machine.top / name),))


def test_system_folders_and_the_top_are_never_granted(machine: Machine) -> None:
    for name in ("/", "/etc", "/usr/share", "/bin"):
        with pytest.raises(ConfigError, match="must not be granted"):
            machine.sandbox(allowed_roots=(name,))


def test_open_mode_gives_the_home_without_its_secrets(machine: Machine) -> None:
    sandbox = machine.sandbox(mode="open")

    assert sandbox.find(NOWHERE, "~/anything").path == machine.user_home / "anything"
    for name in (".ssh/id", ".aws/x", ".fermix/auth.json", ".fermix/config.toml", ".fermix/memory.db-wal"):
        with pytest.raises(OutsideSandbox, match="protected"):
            sandbox.find(NOWHERE, f"~/{name}").open_file()


def test_a_folder_that_is_open_twice_is_named_once(machine: Machine) -> None:
    """The daemon was started where the owner asks from."""
    sandbox, workspace = machine.sandbox(), machine.home.workspace
    twice = (Root(workspace, "workspace"), Root(workspace, "launch"))

    with pytest.raises(OutsideSandbox) as caught:
        sandbox.roots_under(sandbox.settings).admit(machine.outside, twice)
    assert str(caught.value.user_text).endswith(f"only these folders are open: {workspace}")


def test_a_refusal_says_what_is_open(machine: Machine) -> None:
    with pytest.raises(OutsideSandbox) as caught:
        machine.sandbox().find(NOWHERE, str(machine.outside / "other")).open_file()

    refused = machine.outside / "other"
    assert caught.value.user_text == (
        f"I may not look into {refused}: only these folders are open: {machine.home.workspace}; "
        "the owner opens another one with `fermix grant path FOLDER`, in a chat with `/grant path FOLDER`"
    )


def test_a_guest_is_not_told_how_folders_are_opened(machine: Machine) -> None:
    with pytest.raises(OutsideSandbox) as caught:
        machine.sandbox().find(replace(NOWHERE, trust=Trust.GUEST), str(machine.outside / "other"))

    assert str(caught.value.user_text).endswith(f"only these folders are open: {machine.home.workspace}")


def test_what_lies_in_two_roots_is_opened_from_the_outer_one(machine: Machine) -> None:
    """SBX-01: what runs in the outer one could put a link in the place of a folder above the inner one."""
    project = machine.user_home / "project"
    (project / "deep" / "granted").mkdir(parents=True)
    sandbox = machine.sandbox(allowed_roots=(str(project / "deep" / "granted"),))
    place = sandbox.find(turn_at(project), "deep/granted/a.txt")
    (project / "deep").rename(project / "away")
    (machine.outside / "granted").mkdir(parents=True)
    (machine.outside / "granted" / "a.txt").write_text("outside", encoding="utf-8")
    (project / "deep").symlink_to(machine.outside)

    with pytest.raises(OutsideSandbox, match="a link on the way"):
        place.open_file()


@pytest.mark.parametrize(
    ("mode", "cwd", "advice"),
    [
        ("standard", "srv", "; run from a folder inside your home, or open it with `fermix grant path`"),
        (
            "standard",
            "home/ann",
            "; run from a folder inside your home, or open a folder in it with `fermix grant path`",
        ),
        ("strict", "home/ann/project", "; open it with `fermix grant path`"),
    ],
)
def test_asking_from_a_folder_that_is_not_open_is_told_for_relative_paths_too(
    machine: Machine, mode: str, cwd: str, advice: str
) -> None:
    """Looked for in the workspace instead, the folder would seem to be empty."""
    sandbox, folder = machine.sandbox(mode=mode), machine.top / cwd

    for path in (".", "a.txt"):
        with pytest.raises(OutsideSandbox) as caught:
            sandbox.find(turn_at(folder), path)
        assert caught.value.user_text == (
            f"I may not look into {folder}: only these folders are open: {machine.home.workspace}{advice}"
        )
    assert sandbox.find(turn_at(folder), str(machine.home.workspace / "a.txt")).path.name == "a.txt"


def test_nobody_is_told_how_to_open_what_is_protected(machine: Machine) -> None:
    folder = machine.user_home / ".ssh"
    with pytest.raises(OutsideSandbox) as caught:
        machine.sandbox().find(turn_at(folder), ".")

    assert caught.value.user_text == f"I may not look into {folder}: protected, no tool may touch it"


def test_a_link_out_of_the_workspace_is_refused(machine: Machine) -> None:
    """SBX-01: the text of the path is inside, the file is not."""
    (machine.home.workspace / "k").symlink_to(machine.user_home / ".ssh/id")
    (machine.home.workspace / "out").symlink_to(machine.outside)

    for name in ("k", "out/other", f"{machine.home.workspace}/../../.ssh/id", "../auth.json"):
        with pytest.raises(OutsideSandbox):
            machine.sandbox().find(NOWHERE, name).open_file()


def test_a_dangling_link_out_is_refused(machine: Machine) -> None:
    """SBX-02: the parent is inside, what the last part means is not."""
    (machine.home.workspace / "notes.md").symlink_to(machine.outside / "new.txt")

    with pytest.raises(OutsideSandbox, match="only these folders are open"):
        machine.sandbox().find(NOWHERE, "notes.md")


def test_a_link_inside_the_workspace_is_followed(machine: Machine) -> None:
    (machine.home.workspace / "real").write_text("text", encoding="utf-8")
    (machine.home.workspace / "alias").symlink_to("real")

    descriptor = machine.sandbox().find(NOWHERE, "alias").open_file()

    assert os.read(descriptor, 10) == b"text"
    os.close(descriptor)


def test_another_name_of_a_protected_file_is_protected_too(machine: Machine) -> None:
    """SBX-05: letter case on some file systems, a hard link on every one."""
    os.link(machine.home.auth, machine.home.workspace / "notes")

    with pytest.raises(OutsideSandbox, match="protected"):
        machine.sandbox().find(NOWHERE, "notes").open_file()


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "x" * 300, "loop"])
def test_an_impossible_name_is_an_error_not_a_crash(machine: Machine, name: str) -> None:
    (machine.home.workspace / "loop").symlink_to("loop")

    with pytest.raises((OutsideSandbox, OSError)):
        machine.sandbox().find(NOWHERE, name).open_file()


def test_a_pipe_is_not_waited_for(machine: Machine) -> None:
    """R-29: only regular files, seen on the descriptor."""
    os.mkfifo(machine.home.workspace / "pipe")

    with pytest.raises(OutsideSandbox, match="neither a file nor a folder"):
        machine.sandbox().find(NOWHERE, "pipe").open_file()


@pytest.fixture
def swapping(machine: Machine) -> Iterator[Path]:
    """A path whose folder is a link to the outside every other moment."""
    inside, link = machine.home.workspace / "inside", machine.home.workspace / "link"
    inside.mkdir()
    (inside / "other").write_text("inside", encoding="utf-8")
    link.symlink_to(machine.outside)
    stop = threading.Event()
    place = machine.home.workspace / "place"
    inside.rename(place)

    def swap() -> None:
        while not stop.is_set():
            place.rename(inside)
            link.rename(place)
            place.rename(link)
            inside.rename(place)

    thread = threading.Thread(target=swap)
    thread.start()
    yield place
    stop.set()
    thread.join(5)


def test_swapping_a_folder_for_a_link_never_opens_the_outside(machine: Machine, swapping: Path) -> None:
    """R-29: resolve, decide, open is a race that the swapper must not win."""
    sandbox = machine.sandbox()
    read: set[bytes] = set()
    for _ in range(3_000):
        try:
            descriptor = sandbox.find(NOWHERE, str(swapping / "other")).open_file()
        except (OutsideSandbox, FileNotFoundError, NotADirectoryError):
            continue
        read.add(os.read(descriptor, 10))
        os.close(descriptor)

    assert read == {b"inside"}


def test_a_command_sees_no_key_and_no_terminal_program(machine: Machine) -> None:
    """R-40, EXE-07: an allow list, and nobody to ask."""
    environment = machine.sandbox().confined(NOWHERE).environment

    assert environment["PATH"] == "/bin"
    assert environment["GIT_TERMINAL_PROMPT"] == "0"
    assert "KEY" not in environment


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "trusted_local"}, "is now called 'open'"),
        ({"mode": "yolo"}, "Input should be 'strict', 'standard' or 'open'"),
        ({"allowed_roots": ("relative",)}, "must be an absolute path"),
        ({"roots": ()}, "Extra inputs are not permitted"),
    ],
)
def test_a_wrong_setting_says_what_is_right(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SandboxSettings.model_validate(settings)


@pytest.mark.parametrize("mode", ["strict", "standard", "open"])
def test_who_the_agent_is_stands_where_no_tool_reaches(machine: Machine, mode: str) -> None:
    """INJ-05: what is told to write itself into the persona finds no tool that could, by whatever name."""
    persona = machine.home.bootstrap / "SOUL.md"
    persona.parent.mkdir(parents=True, exist_ok=True)
    persona.write_text("I am Ada.", encoding="utf-8")
    (machine.home.workspace / "link").symlink_to(persona)
    (machine.home.workspace / "folder").symlink_to(persona.parent)
    os.link(persona, machine.home.workspace / "twin")
    sandbox = machine.sandbox(mode=mode, launch_dir=machine.user_home)
    for name in (str(persona), "link", "folder/SOUL.md", f"../bootstrap/{persona.parent.name}/SOUL.md",
                 f"~/.fermix/bootstrap/{persona.parent.name}/SOUL.md", str(machine.home.config)):  # fmt: skip
        with pytest.raises(OutsideSandbox):
            sandbox.find(NOWHERE, name)
    with pytest.raises(ConfigError):
        machine.sandbox(mode=mode, allowed_roots=(str(persona.parent),))


@pytest.mark.parametrize("trust", [Trust.OPERATOR, Trust.GUEST])
@pytest.mark.parametrize(
    "name",
    ["auth.json.previous", "auth.json.bak", ".auth.json.5e1f", "config.toml~", "memory.db.copy", "memory/main/USER.md",
     "models/x", "job_runs/x", "plugins/x", "new/folder/x", "daemon.sock", ""],
)  # fmt: skip
def test_nothing_that_turns_up_in_our_home_is_open(machine: Machine, name: str, trust: Trust) -> None:
    """R-15 for files: a key is copied, a crash leaves half a file behind; what nobody has listed is closed."""
    path = machine.home.root / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("secret", encoding="utf-8")
    turn = turn_at(machine.home.root, trust=trust)
    for mode in ("standard", "open"):
        sandbox = machine.sandbox(mode=mode, launch_dir=machine.home.root)
        with pytest.raises(OutsideSandbox):
            sandbox.find(turn, str(path))
        assert sandbox.find(turn, str(machine.home.workspace / "mine")).path.name == "mine"


def test_a_walk_through_the_users_home_passes_by_what_we_keep(machine: Machine) -> None:
    (machine.home.root / "auth.json.bak").write_text("secret", encoding="utf-8")
    kept = (machine.home.root / "auth.json.bak").stat()
    place = machine.sandbox(mode="open").find(NOWHERE, "~")

    assert (kept.st_dev, kept.st_ino) in place.closed.known
    assert (machine.home.workspace.stat().st_dev, machine.home.workspace.stat().st_ino) not in place.closed.known
