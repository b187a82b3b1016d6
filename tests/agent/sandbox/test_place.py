"""Files are replaced whole, below their root, and never through a link or another name of something closed."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fermix.agent.sandbox.closed import MOST_NAMES, Closed
from fermix.agent.sandbox.place import Changed, Place
from fermix.errors import OutsideSandbox
from tests.agent.sandbox.test_sandbox import NOWHERE, Machine, machine, turn_at

__all__ = ["machine"]  # a fixture, used by its name

OPEN = Closed(frozenset(), ())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "outside").mkdir()
    return root


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_link_as_the_last_part_is_neither_followed_nor_replaced(root: Path) -> None:
    """SBX-02: swapped in after the path was decided on, it gains nothing."""
    (root / "notes").symlink_to(root.parent / "outside/new")

    with pytest.raises(OutsideSandbox, match="a link on the way"):
        Place(root, root / "notes", OPEN).write(b"text")

    assert (names(root), (root / "notes").is_symlink()) == (["notes"], True)
    assert names(root.parent / "outside") == []


@pytest.mark.parametrize("make_folders", [False, True])
def test_a_link_on_the_way_is_not_followed(root: Path, *, make_folders: bool) -> None:
    (root / "out").symlink_to(root.parent / "outside")

    with pytest.raises((OutsideSandbox, NotADirectoryError)):
        Place(root, root / "out/new", OPEN).write(b"text", make_folders=make_folders)
    with pytest.raises((OutsideSandbox, NotADirectoryError)):
        Place(root, root / "out/deeper/new", OPEN).write(b"text", make_folders=True)

    assert names(root.parent / "outside") == []


def test_a_link_inside_the_root_is_judged_by_where_it_leads(machine: Machine) -> None:
    """The real path is what is written; the link stays."""
    workspace = machine.home.workspace
    (workspace / "real").write_text("old", "utf-8")
    (workspace / "alias").symlink_to("real")

    machine.sandbox().find_to_change(NOWHERE, "alias").write(b"new")

    assert ((workspace / "alias").is_symlink(), (workspace / "real").read_bytes()) == (True, b"new")


def test_what_is_no_file_is_not_replaced(root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()

    with pytest.raises(OutsideSandbox, match="neither a file nor a folder"):
        Place(root, root / "pipe", OPEN).write(b"text")
    for path in (root / "folder", root):
        with pytest.raises(IsADirectoryError):
            Place(root, path, OPEN).write(b"text")

    assert names(root) == ["folder", "pipe"]


def test_a_file_that_its_owner_made_read_only_stays(root: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    (root / "fixed").write_text("old", "utf-8")
    (root / "fixed").chmod(0o444)

    with pytest.raises(PermissionError):
        Place(root, root / "fixed", OPEN).write(b"new")


def test_new_content_never_runs_as_another_user(root: Path) -> None:
    """A program's set-user-ID bit was for what it held before."""
    (root / "tool").write_bytes(b"old")
    (root / "tool").chmod(0o6755)

    Place(root, root / "tool", OPEN).write(b"new")

    assert stat.S_IMODE((root / "tool").stat().st_mode) == 0o755


def test_a_file_is_never_wider_than_it_will_be(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-47: looked at before its first byte."""
    (root / "key").touch(mode=0o600)
    seen: list[int] = []
    real_open = os.open

    def watching(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        descriptor = real_open(path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_EXCL:
            seen.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor

    monkeypatch.setattr(os, "open", watching)
    Place(root, root / "key", OPEN).write(b"secret")

    assert seen == [0o600]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(root: Path) -> None:
    """A limit on file sizes stands for the disk: the write ends in the middle."""
    (root / "notes").write_text("old", "utf-8")
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from fermix.agent.sandbox.closed import Closed\n"
        "from fermix.agent.sandbox.place import Place\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "root = Path(sys.argv[1])\n"
        "try:\n"
        "    Place(root, root / 'notes', Closed(frozenset(), ())).write(b'x' * 200_000)\n"
        "except OSError as error:\n"
        "    print(error.errno)\n"
    )

    done = subprocess.run([sys.executable, "-c", program, str(root)], capture_output=True, check=True, timeout=20)

    assert int(done.stdout) == errno.EFBIG
    assert (names(root), (root / "notes").read_text("utf-8")) == (["notes"], "old")


def test_what_turned_up_meanwhile_is_not_overwritten(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_sync = os.fsync

    def sync(descriptor: int) -> None:
        real_sync(descriptor)
        (root / "notes").write_text("theirs", "utf-8")

    monkeypatch.setattr(os, "fsync", sync)

    with pytest.raises(Changed, match="was changed"):
        Place(root, root / "notes", OPEN).write(b"ours")

    assert (names(root), (root / "notes").read_text("utf-8")) == (["notes"], "theirs")


def test_a_reader_sees_the_old_or_the_new_and_never_a_part(root: Path) -> None:
    place = Place(root, root / "notes", OPEN)
    whole = [bytes([letter]) * 300_000 for letter in b"ab"]
    place.write(whole[0])
    seen: set[bytes] = set()
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            seen.add((root / "notes").read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(40):
        place.write(whole[turn % 2])
    stop.set()
    reader.join(5)

    assert seen <= set(whole)


@pytest.fixture
def swapping(root: Path) -> Iterator[Path]:
    """A name that is a folder and a link to the outside in turn."""
    name, spare, link = root / "name", root / "spare", root / "link"
    spare.mkdir()
    link.symlink_to(root.parent / "outside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for other in (spare, link):
                other.rename(name)
                name.rename(other)

    thread = threading.Thread(target=swap)
    thread.start()
    yield name
    stop.set()
    thread.join(5)


def test_a_swapper_gets_no_file_outside(root: Path, swapping: Path) -> None:
    """R-29: the folder above the name is a link every other moment."""
    written = 0
    for number in range(50_000):  # on a busy machine the two may miss each other for long
        if written and number >= 1_000:
            break
        try:
            written += Place(root, swapping / str(number % 10), OPEN).write(b"text")
        except (OutsideSandbox, FileNotFoundError, NotADirectoryError, Changed):
            continue

    assert written
    assert names(root.parent / "outside") == []


def test_a_second_name_of_a_protected_file_opens_nothing(machine: Machine) -> None:
    """SBX-05: a hard link to a file deep inside a protected folder, in reach of every file tool."""
    workspace = machine.home.workspace
    deep = machine.user_home / ".ssh/keys/old/id"
    deep.parent.mkdir(parents=True)
    deep.write_text("secret", "utf-8")
    os.link(deep, workspace / "notes")
    place = machine.sandbox().find(NOWHERE, "notes")

    with pytest.raises(OutsideSandbox, match="protected"):
        place.open_file()
    with pytest.raises(OutsideSandbox, match="protected"):
        place.write(b"text")

    assert deep.read_text("utf-8") == "secret"


def test_a_second_name_of_a_key_made_a_moment_ago_opens_nothing(machine: Machine) -> None:
    """What is closed is looked up at most once a second; a file with two names is asked for anew."""
    sandbox = machine.sandbox()
    sandbox.find(NOWHERE, ".")
    fresh = machine.home.root / "auth.json.copy"
    fresh.write_text("secret", "utf-8")
    os.link(fresh, machine.home.workspace / "notes")

    with pytest.raises(OutsideSandbox, match="protected"):
        sandbox.find(NOWHERE, "notes").open_file()


def test_a_second_name_of_an_open_file_stays_open(machine: Machine) -> None:
    workspace = machine.home.workspace
    (workspace / "one").write_text("text", "utf-8")
    os.link(workspace / "one", workspace / "two")

    descriptor = machine.sandbox().find(NOWHERE, "two").open_file()

    assert os.read(descriptor, 10) == b"text"
    os.close(descriptor)


def test_where_too_much_is_closed_to_tell_a_second_name_is_closed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_NAMES > 10_000
    monkeypatch.setattr("fermix.agent.sandbox.closed.MOST_NAMES", 3)
    for number in range(5):
        (root.parent / f"outside/{number}").touch()
    (root / "one").touch()
    os.link(root / "one", root / "two")

    assert Closed(frozenset(), (root.parent / "outside",)).holds((root / "one").stat())


@pytest.mark.parametrize(
    "name",
    [".SSH/id2", ".Ssh/authorized_keys", ".netrc", ".config/gh/hosts.yml", ".local/share/keyrings/login.keyring",
     ".mozilla/firefox/x/logins.json", ".password-store/mail.gpg", ".git-credentials", ".bash_history"],
)  # fmt: skip
def test_no_mode_opens_what_holds_secrets(machine: Machine, name: str) -> None:
    """SBX-05, R-32: compared as the most forgiving file system does, whether it is there or not."""
    with pytest.raises(OutsideSandbox, match="protected"):
        machine.sandbox(mode="open").find(NOWHERE, f"~/{name}")


@pytest.mark.parametrize(
    "name",
    [
        ".bashrc",
        ".zshrc",
        ".config/autostart/x.desktop",
        ".config/systemd/user/x.service",
        ".gitconfig",
        ".vim/plugin/x.vim",
        ".config/emacs/init.el",
        ".config/plasma-workspace/env/x.sh",
        ".bash_completion",
    ],
)
def test_what_the_next_session_runs_is_looked_at_only(machine: Machine, name: str) -> None:
    """A file written by a fooled turn must not become a command of its owner."""
    sandbox = machine.sandbox(mode="open")

    assert sandbox.find(NOWHERE, f"~/{name}").path == machine.user_home / name
    with pytest.raises(OutsideSandbox, match="what the agent, or a session"):
        sandbox.find_to_change(NOWHERE, f"~/{name}")


@pytest.mark.parametrize("mode", ["strict", "standard", "open"])
def test_who_the_agent_is_cannot_be_changed_by_a_file_tool(machine: Machine, mode: str) -> None:
    """INJ-05, R-53: prompt files, skills, grants, configuration, records, sockets."""
    sandbox, home = machine.sandbox(mode=mode), machine.home
    kept = (
        home.bootstrap / "SOUL.md", home.memory / "USER.md", home.skills / "x/SKILL.md", home.grants / "g.json",
        home.config, home.auth, home.database, home.log_file, home.traces / "x", home.daemon_socket, home.run / "x",
        home.plugins / "x", home.root / "new",
    )  # fmt: skip
    for path in kept:
        with pytest.raises(OutsideSandbox):
            sandbox.find_to_change(turn_at(home.root), str(path))


def test_a_granted_skills_folder_is_still_not_written(machine: Machine) -> None:
    sandbox = machine.sandbox(allowed_roots=(str(machine.home.skills),))

    assert sandbox.find(NOWHERE, f"{machine.home.skills}/x").path
    with pytest.raises(OutsideSandbox, match="no tool may change it"):
        sandbox.find_to_change(NOWHERE, f"{machine.home.skills}/x")


def test_the_forms_of_a_name_are_the_file_systems(machine: Machine) -> None:
    """R-32: two Unicode forms are two files here, so neither is written for the other."""
    composed, parted = "caf\u00e9", "cafe\u0301"
    sandbox = machine.sandbox()
    sandbox.find_to_change(NOWHERE, composed).write(b"one")
    sandbox.find_to_change(NOWHERE, parted).write(b"two")
    same = (machine.home.workspace / composed).samefile(machine.home.workspace / parted)

    assert (machine.home.workspace / parted).read_bytes() == b"two"
    assert names(machine.home.workspace) == ([composed] if same else sorted([composed, parted]))


def test_nothing_is_left_open(root: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    place = Place(root, root / "a/b/notes", OPEN)
    place.write(b"one", make_folders=True)
    place.rewrite((root / "a/b/notes").stat(), b"two")
    with pytest.raises(NotADirectoryError):
        Place(root, root / "a/b/notes/x", OPEN).write(b"", make_folders=True)

    assert len(list(Path("/proc/self/fd").iterdir())) == before
