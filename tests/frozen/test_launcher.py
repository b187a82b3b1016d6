"""The launcher: one unpacking, whatever happens around it, and never a half-made program."""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frozen.packs import WAIT_S, Build, World, can_mount, pack
from tests.requirements import covers

pytestmark = pytest.mark.slow
needs_mounts = pytest.mark.skipif(not can_mount(), reason="needs the right to mount in a namespace of its own")


def _locks(build: Build) -> set[str]:
    return {build.key, f"{build.key}.lock", "unpack.lock"}


def _refused(done: subprocess.CompletedProcess[str], sentence: str) -> bool:
    return done.returncode == 126 and sentence in done.stderr


@covers("ship.binary.self-contained")
def test_first_start_unpacks_and_later_starts_use_the_same_program(world: World, one: Build) -> None:
    """One file starts everywhere; unpacking happens once for each build."""
    first = world.run(one, "start")
    second = world.run(one, "start")

    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout.splitlines()[0] == second.stdout.splitlines()[0]
    assert _locks(one) == world.left()


def test_unpacked_folder_is_the_packed_one(world: World, one: Build) -> None:
    """Files, links and what may be executed are the same; nobody else may read them."""
    world.run(one)
    tree = world.runtime / one.key

    assert (tree / "_internal" / "link").read_text(encoding="utf-8") == "late content"
    assert Path("lib/late") == (tree / "_internal" / "link").readlink()
    assert tree.stat().st_mode & 0o777 == 0o700
    assert (tree / "fermix").stat().st_mode & 0o777 == 0o700
    assert (tree / "_internal" / "lib" / "late").stat().st_mode & 0o777 == 0o600


def test_same_folder_gives_the_same_bytes(program_folder: Callable[[str], Path]) -> None:
    """Times, owners and the order of a folder do not reach the file."""
    folder = program_folder("same")
    copy = folder.with_name("copy")
    shutil.copytree(folder, copy, symlinks=True)
    os.utime(copy / "fermix", (1, 1))

    assert pack.make_payload(folder, level=1) == pack.make_payload(copy, level=1)


def test_program_learns_where_its_file_is_and_nothing_else_changes(world: World, one: Build) -> None:
    """FERMIX_EXE is the file; argv[0], the environment and the exit code pass through. PKG-01: no library path."""
    environment = world.environment({"KEPT": "yes"})

    done = subprocess.run(
        ["spoken", "start", "7"],
        executable=one.file,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )

    told = done.stdout.splitlines()
    variables = {line for line in told if line.startswith("env ")}
    assert done.returncode == 7
    assert "argv0 spoken" in told
    assert {f"env FERMIX_EXE={one.file}", "env KEPT=yes", f"env HOME={world.home}"} <= variables
    assert not [line for line in variables if line.startswith(("env LD_", "env DYLD_", "env _PYI"))]


def test_file_path_is_its_own_even_when_started_by_a_link(world: World, one: Build, tmp_path: Path) -> None:
    """FERMIX_EXE names the file itself."""
    link = tmp_path / "link"
    link.symlink_to(one.file)

    done = world.run(Build(link, one.key), "start")

    assert f"env FERMIX_EXE={one.file}\n" in done.stdout


def test_program_inherits_one_lock_and_no_other_file(world: World, one: Build) -> None:
    """A start with closed standard files keeps the lock away from them."""
    argv = ["sh", "-c", 'exec "$0" start <&- 2>&-', str(one.file)]

    done = subprocess.run(
        argv, env={"HOME": str(world.home)}, capture_output=True, text=True, timeout=WAIT_S, check=True
    )

    files = [line for line in done.stdout.splitlines() if line.startswith("fd ")]
    assert files[:3] == ["fd 0 write", "fd 1 write", "fd 2 write"]
    assert len(files) == 4
    assert files[3].endswith(" read")


def test_twenty_first_starts_at_once_all_work_with_one_unpacking(world: World, one: Build) -> None:
    """Two first starts at once end well."""
    starts = [world.start(one, "start") for _ in range(20)]
    told = [start.communicate(timeout=WAIT_S * 4) for start in starts]

    assert [start.returncode for start in starts] == [0] * 20
    assert len({out.splitlines()[0] for out, _ in told}) == 1
    assert {""} == {error for _, error in told}
    assert _locks(one) == world.left()


def test_start_killed_while_unpacking_leaves_nothing_that_is_used(world: World, one: Build) -> None:
    """kill -9 in the middle: the next start unpacks again and removes the half."""
    killed = world.start(one)
    half = world.runtime / f".new-{one.key}" / "_internal" / "lib"
    while killed.poll() is None and not half.exists():
        pass
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=WAIT_S)
    assert killed.returncode == -signal.SIGKILL
    assert half.exists()

    done = world.run(one)

    assert (done.returncode, done.stdout, done.stderr) == (0, "one\n", "")
    assert _locks(one) == world.left()


@pytest.mark.parametrize("lost_bytes", [1, 80, 5_000_000])
def test_truncated_file_is_told_and_never_unpacked(world: World, one: Build, tmp_path: Path, lost_bytes: int) -> None:
    """A broken download says so."""
    broken = Build(tmp_path / "broken", one.key)
    shutil.copy(one.file, broken.file)
    os.truncate(broken.file, one.file.stat().st_size - lost_bytes)

    done = world.run(broken)

    assert _refused(done, "incomplete")
    assert not world.runtime.exists()


def test_one_flipped_byte_is_told_and_nothing_is_installed(world: World, one: Build, tmp_path: Path) -> None:
    """The payload is hashed before the first byte of it is unpacked."""
    content = bytearray(one.file.read_bytes())
    content[-100_000] ^= 1
    broken = Build(tmp_path / "broken", one.key)
    broken.file.write_bytes(content)
    broken.file.chmod(0o755)

    done = world.run(broken)

    assert _refused(done, "damaged")
    assert not [name for name in world.left() if not name.endswith(".lock")]


@needs_mounts
def test_full_disk_moves_on_to_the_next_folder_and_leaves_no_half(world: World, one: Build) -> None:
    """A full disk ends well: the reason is told, the next folder is used."""
    small = f"mkdir {world.home}/small; mount -t tmpfs -o size=2m,mode=700 tmpfs {world.home}/small"

    done = world.mounted(one, small, XDG_CACHE_HOME=f"{world.home}/small")

    assert (done.returncode, done.stdout) == (0, "one\n")
    assert f"cannot unpack to {world.home}/small/fermix/runtime: No space left on device" in done.stderr
    assert _locks(one) == world.left()


@needs_mounts
def test_no_folder_with_room_is_told_with_what_to_do(world: World, one: Build) -> None:
    """Every folder tried is named with its reason, then one advice."""
    full = (
        f"mount -t tmpfs -o size=64k,mode=700 tmpfs {world.home}; mount -t tmpfs -o size=64k,mode=1777 tmpfs /var/tmp"
    )

    done = world.mounted(one, full)

    assert _refused(done, "set XDG_CACHE_HOME to a folder of your own")
    assert done.stderr.count("cannot unpack to") == 2


@needs_mounts
@pytest.mark.parametrize(("option", "why"), [("noexec", "noexec"), ("ro", "Read-only file system")])
def test_disk_that_runs_or_takes_nothing_is_passed_over(world: World, one: Build, option: str, why: str) -> None:
    """A home mounted noexec or read-only: /var/tmp is used, in a folder for this user."""
    mount = f"mount -t tmpfs -o {option},mode=700 tmpfs {world.home}"

    done = world.mounted(one, mount)

    assert (done.returncode, done.stdout) == (0, "one\n")
    assert why in done.stderr
    assert f"/var/tmp/fermix-{os.geteuid()}/runtime/{one.key}" in done.stderr


@needs_mounts
def test_start_without_a_home_uses_a_folder_of_this_user(world: World, one: Build) -> None:
    """A service may have no HOME, and a relative cache folder is to be ignored."""
    done = world.mounted(one, "", HOME="", XDG_CACHE_HOME="relative")

    assert (done.returncode, done.stdout) == (0, "one\n")
    assert f"/var/tmp/fermix-{os.geteuid()}/runtime/{one.key}" in done.stderr


@needs_mounts
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be in another user's home")
@pytest.mark.parametrize("has_cache", [False, True])
def test_root_makes_and_trusts_nothing_in_another_users_home(world: World, one: Build, has_cache: bool) -> None:
    """`sudo fermix` keeps the user's HOME: a folder of root's there would lock the user out."""
    if has_cache:
        world.runtime.mkdir(parents=True)
    for folder in [world.home, *world.home.rglob("*")]:
        os.chown(folder, 65534, 65534)
    before = {path: path.stat().st_uid for path in world.home.rglob("*")}

    done = world.mounted(one, "", XDG_CACHE_HOME=f"{world.home}/.cache")

    assert (done.returncode, done.stdout) == (0, "one\n")
    assert "/var/tmp/fermix-0/runtime/" in done.stderr
    assert before == {path: path.stat().st_uid for path in world.home.rglob("*")}


@needs_mounts
def test_folder_that_others_can_change_is_refused(world: World, one: Build) -> None:
    """A program is never run from where another user could put one."""
    world.run(one)
    world.runtime.chmod(0o777)

    done = world.mounted(one, "mount -t tmpfs -o ro tmpfs /var/tmp")

    assert _refused(done, "can be changed by other users")


def _remove_mark(tree: Path) -> None:
    (tree / ".complete").unlink()


def _swap_program(tree: Path) -> None:
    (tree / "fermix").unlink()
    (tree / "fermix").symlink_to("/bin/false")


def _open_to_group(tree: Path) -> None:
    tree.chmod(0o770)


def _remove_one_module(tree: Path) -> None:
    (tree / "_internal" / "lib" / "module77.pyc").unlink()


def _cut_one_module(tree: Path) -> None:
    os.truncate(tree / "_internal" / "lib" / "module77.pyc", 0)


def _cut_the_mark(tree: Path) -> None:
    mark = tree / ".complete"
    os.truncate(mark, mark.stat().st_size - 5)


DAMAGES = [_remove_mark, _swap_program, _open_to_group, _remove_one_module, _cut_one_module, _cut_the_mark]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_cache_is_replaced_before_it_is_used(world: World, one: Build, damage: Callable[[Path], None]) -> None:
    """PKG-02: a cleaner that took one file is noticed at the next start, not at a late import."""
    world.run(one)
    damage(world.runtime / one.key)

    done = world.run(one, "start")

    assert (done.returncode, done.stderr) == (0, "")
    assert "argv0" in done.stdout
    assert sum(1 for path in (world.runtime / one.key / "_internal").rglob("*") if path.is_file()) == 1202
    assert _locks(one) == world.left()


def test_cache_deleted_under_a_running_program_can_be_restored(world: World, one: Build) -> None:
    """PKG-02: FERMIX_VERIFY_ONLY puts a deleted cache back without starting anything."""
    with world.start(one, "late") as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        shutil.rmtree(world.runtime)
        restored = world.run(one, FERMIX_VERIFY_ONLY="1")

        out, _ = running.communicate("_internal/lib/late\n", timeout=WAIT_S)

    assert (restored.returncode, restored.stdout, restored.stderr) == (0, "", "")
    assert out == "late content\n"


def test_running_build_is_kept_beside_a_newer_one_and_removed_after(
    world: World, one: Build, build_of: Callable[[str], Build]
) -> None:
    """An upgrade never touches a running version; what nobody uses goes at the next unpacking."""
    two, three = build_of("two"), build_of("three")
    with world.start(one, "late") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        assert world.run(two).stdout == "two\n"
        both = world.left()
        running.communicate("", timeout=WAIT_S)

    assert world.run(three).stdout == "three\n"
    assert _locks(one) | _locks(two) == both
    assert _locks(three) == world.left()


def test_lock_says_in_use_until_the_program_ends(world: World, one: Build) -> None:
    """The lock goes with the program, not with the launcher."""
    lock = world.runtime / f"{one.key}.lock"
    with world.start(one, "late") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        with lock.open("rb") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        running.communicate("", timeout=WAIT_S)

    with lock.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _hostile(name: str, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    if target:
        entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


HOSTILE = [
    _hostile("../escaped"),
    _hostile("/escaped"),
    _hostile("inner/../../escaped"),
    _hostile("."),
    _hostile("link", "../escaped"),
    _hostile("link", "/etc"),
    _hostile("two\nlines"),
]


@pytest.mark.parametrize("entry", HOSTILE, ids=lambda entry: f"{entry.name!r}->{entry.linkname}")
def test_payload_cannot_name_a_place_outside_its_folder(
    world: World, launcher: Path, tmp_path: Path, entry: tarfile.TarInfo
) -> None:
    """Names are checked although the payload is verified: a faulty build must not write elsewhere."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(entry)
        raw = buffer.getvalue()[: tar.offset]
    zipped = subprocess.run(["zstd", "-q", "-c"], input=raw, capture_output=True, check=True, timeout=WAIT_S).stdout
    bad = Build(tmp_path / "bad", "")
    pack.seal(launcher, pack.Payload(zipped, len(raw), 1), bad.file)

    done = world.run(bad)

    assert _refused(done, "built wrongly")
    assert not list(world.home.rglob("*escaped*"))
