from __future__ import annotations

import errno
import os
import re
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from fermix.errors import ConfigError, NeedsOperator
from fermix.home import (
    SOCKET_PATH_BYTES,
    Home,
    check_socket_path,
    hold_lock,
    is_held,
    write_atomic,
)
from tests.requirements import covers


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "fermix")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@covers("home.root")
@pytest.mark.parametrize(
    ("environ", "root"),
    [
        ({}, "{HOME}/.fermix"),
        ({"FERMIX_HOME": "  "}, "{HOME}/.fermix"),
        ({"FERMIX_HOME": "/srv/agent"}, "/srv/agent"),
        ({"FERMIX_HOME": " /srv/agent "}, "/srv/agent"),
        ({"FERMIX_HOME": "~/agent"}, "{HOME}/agent"),
    ],
)
def test_the_home_is_where_fermix_home_says_or_a_dot_folder(environ: dict[str, str], root: str) -> None:
    assert str(Home.locate(environ).root) == root.replace("{HOME}", os.environ["HOME"])


def test_a_relative_home_is_refused() -> None:
    with pytest.raises(ConfigError, match="FERMIX_HOME: must be an absolute path"):
        Home.locate({"FERMIX_HOME": "agent"})


def test_preparing_makes_every_folder_private_whatever_the_umask(home: Home) -> None:
    old = os.umask(0)
    try:
        home.prepare()
    finally:
        os.umask(old)

    assert {folder: mode(folder) for folder in home.folders()} == dict.fromkeys(home.folders(), 0o700)


def test_preparing_again_keeps_what_is_there_and_narrows_a_wide_home(home: Home) -> None:
    home.prepare()
    (home.workspace / "kept.txt").write_text("kept", encoding="utf-8")
    home.root.chmod(0o755)
    home.prepare()

    assert mode(home.root) == 0o700
    assert (home.workspace / "kept.txt").read_text(encoding="utf-8") == "kept"


def test_a_home_that_cannot_be_made_is_said_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(NeedsOperator, match=r"cannot prepare .*Not a directory.*FERMIX_HOME"):
        Home(tmp_path / "file" / "fermix").prepare()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder that belongs to somebody else")
def test_a_home_of_another_user_is_refused(home: Home) -> None:
    home.prepare()
    os.chown(home.root, 12345, -1)
    with pytest.raises(NeedsOperator, match="belongs to another user"):
        home.prepare()


def test_a_socket_path_is_possible_up_to_its_bound_in_bytes() -> None:
    check_socket_path(Path("/" + "x" * (SOCKET_PATH_BYTES - 1)))
    for path in ("/" + "x" * SOCKET_PATH_BYTES, "/" + "ü" * 60):
        with pytest.raises(ConfigError, match=f"at most {SOCKET_PATH_BYTES}"):
            check_socket_path(Path(path))


def test_a_file_is_replaced_whole_with_its_mode(tmp_path: Path) -> None:
    target = tmp_path / "config.toml"
    target.write_bytes(b"old")
    target.chmod(0o644)
    write_atomic(target, b"new")

    assert target.read_bytes() == b"new"
    assert mode(target) == 0o600
    assert list(tmp_path.glob(".config*")) == []


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    (target / "inside").write_bytes(b"kept")
    with pytest.raises(OSError, match="directory"):
        write_atomic(target, b"new")

    assert (target / "inside").read_bytes() == b"kept"
    assert list(tmp_path.glob(".folder*")) == []


def test_writing_through_a_link_replaces_the_link_and_not_its_target(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"untouched")
    (tmp_path / "auth.json").symlink_to(tmp_path / "elsewhere")
    write_atomic(tmp_path / "auth.json", b"new")

    assert (tmp_path / "elsewhere").read_bytes() == b"untouched"
    assert not (tmp_path / "auth.json").is_symlink()


def test_a_file_system_that_cannot_sync_a_folder_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DB-09: the file itself is synced and safe."""
    sync = os.fsync

    def sync_files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync_files_only)
    write_atomic(tmp_path / "auth.json", b"new")

    assert (tmp_path / "auth.json").read_bytes() == b"new"


def test_one_daemon_holds_a_home_and_the_second_learns_its_pid(home: Home) -> None:
    home.prepare()
    assert not is_held(home)
    with hold_lock(home):
        assert is_held(home)
        with (
            pytest.raises(NeedsOperator, match=rf"\(pid {os.getpid()}\): stop it with `fermix stop`") as told,
            hold_lock(home),
        ):
            pass
        assert "or a command that needs it alone" in str(told.value)
        assert is_held(home)

    assert not is_held(home)


def test_a_short_question_waits_until_another_one_is_done(home: Home) -> None:
    """Of two `fermix grant` at once, without a daemon, one was told that a daemon runs."""
    home.prepare()
    with ThreadPoolExecutor(1) as other, ExitStack() as held:
        held.enter_context(hold_lock(home))
        waiting = other.submit(held_for_a_moment, home)
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        held.close()
        assert waiting.result(5)


def held_for_a_moment(home: Home) -> bool:
    with hold_lock(home, wait_s=5):
        return True


def test_a_lock_ends_with_its_process(home: Home) -> None:
    home.prepare()
    code = "import sys, time\nfrom pathlib import Path\nfrom fermix.home import Home, hold_lock\n"
    code += "with hold_lock(Home(Path(sys.argv[1]))):\n    print('held', flush=True)\n    time.sleep(30)\n"
    with subprocess.Popen([sys.executable, "-c", code, str(home.root)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            assert is_held(home)
        finally:
            holder.kill()
        holder.wait(5)

    assert not is_held(home)
    with hold_lock(home):
        assert re.fullmatch(rf"{os.getpid()}\n", home.lock.read_text(encoding="ascii"))


def test_a_home_whose_lock_cannot_be_made_is_said_with_what_to_do(home: Home) -> None:
    home.prepare()
    home.lock.mkdir()
    with pytest.raises(NeedsOperator, match=r"cannot lock .*daemon\.lock"), hold_lock(home):
        pass
