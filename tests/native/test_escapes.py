"""Ways out of the walls that were tried and found open once, or that only an older kernel would leave open."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import socket
import stat
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from fermix.native.confine import MOST_FILE_BYTES, Behind, CannotConfine, above
from tests.native.test_confine import SECRET, Place, place

__all__ = ["place"]

X86 = platform.machine() == "x86_64"
KEYCTL, RENAMEAT2 = (250, 316) if X86 else (219, 276)
NULL = Path("/dev/null")
AT_FDCWD, RENAME_EXCHANGE = -100, 2

# Starts a program on a kernel that seems to have no Landlock: its system calls do not exist.
OLD_KERNEL = """
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x50026), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


async def test_a_cover_cannot_be_carried_off_with_the_folder_above_it(place: Place) -> None:
    """What is hidden is known by its path, so under another name the next command would read it."""
    keys = place.root / "open/deep/keys"
    keys.mkdir(parents=True)
    (keys / "id").write_text("carried off")
    moves = "mv open/deep open/other; mv open moved; mkdir -p open/deep/keys; touch open/deep/works"
    await place.run(moves, hide=(keys,))
    finished = await place.run("cat $(find . -name id)", hide=(keys,))

    assert b"carried off" not in finished.output
    assert (keys / "id").read_text() == "carried off"


def test_only_open_folders_above_hidden_ones_are_held(tmp_path: Path) -> None:
    root, ours = tmp_path / "root", tmp_path / "root/a/ours"
    for folder in (ours / "run/commands", ours / "workspace/b/keys", tmp_path / "elsewhere/keys"):
        folder.mkdir(parents=True)
    hidden = (
        ours,
        ours / "run/commands",
        ours / "workspace/b/keys",
        root / "missing/keys",
        tmp_path / "elsewhere/keys",
    )

    assert above(hidden, (root, ours / "workspace")) == [root / "a", ours / "workspace/b"]


async def test_a_link_swapped_in_while_the_walls_are_built_gains_nothing(place: Place) -> None:
    """A command that runs at the same time changes the folders that the view of this one is made of."""
    door, aside = place.root / "door", place.root / "aside"
    (door / "keys").mkdir(parents=True)
    (door / "shown").mkdir()
    (door / "keys/id").write_text(SECRET)
    aside.symlink_to(place.outside)
    stop = threading.Event()

    def swap() -> None:
        exchange = ctypes.CDLL(None).syscall
        while not stop.is_set():
            exchange(RENAMEAT2, AT_FDCWD, bytes(door), AT_FDCWD, bytes(aside), RENAME_EXCHANGE)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(40):
            with suppress(CannotConfine, OSError):
                hidden, shown = (door / "keys",), (place.root, door / "shown")
                finished = await place.run("cat door/keys/id aside/keys/id", hide=hidden, write=shown)
                assert place.form == "rules" or SECRET.encode() not in finished.output
    finally:
        stop.set()
        swapping.join()
    assert [path.name for path in place.outside.iterdir()] == ["secret"]


async def test_the_null_device_of_the_machine_keeps_its_mode(place: Place) -> None:
    """The device belongs to root, and a command of root may change what belongs to root."""
    if place.form == "rules" and os.getuid() == 0:
        pytest.skip("rules know nothing of modes; the decision page says so")
    script = (
        f"chmod 600 /dev/null; {sys.executable} -I -c 'import os; os.fchmod(0, 0o600)'; echo x > /dev/null && echo y"
    )
    finished, mode = await place.run(script), _mode_of_null()
    _restore_null(mode)

    assert mode == 0o666
    assert finished.output.endswith(b"y\n")


def _mode_of_null() -> int:
    return stat.S_IMODE(NULL.stat().st_mode)


def _restore_null(mode: int) -> None:
    if mode != 0o666:
        NULL.chmod(0o666)


async def test_the_keys_that_the_kernel_keeps_for_the_user_are_out_of_reach(place: Place) -> None:
    """A session's keyring passes to every child; Kerberos and encrypted folders keep theirs in it."""
    finished = await place.python(f"import ctypes; print(ctypes.CDLL(None).syscall({KEYCTL}, 0, -3, 0))")

    assert finished.output == b"-1\n"


async def test_a_socket_to_the_host_of_a_virtual_machine_is_network_too(place: Place) -> None:
    """No network namespace holds AF_VSOCK."""
    finished = await place.python("import socket; socket.socket(socket.AF_VSOCK)", network=False)

    assert b"PermissionError" in finished.output


async def test_half_a_pair_of_sockets_cannot_be_connected_elsewhere(place: Place, tmp_path: Path) -> None:
    """The services of a system take datagrams by name, and no rule on files holds a connection."""
    path = tmp_path / "journal"
    code = "import socket; socket.socketpair(type=socket.SOCK_DGRAM)[0].sendto(b'in', '{path}')"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.setblocking(False)
        finished = await place.python(code.format(path=path))

        assert b"Error" in finished.output
        with pytest.raises(BlockingIOError):
            listener.recv(10)
    assert (await place.python("import socket; socket.socketpair()")).exit_code == 0


async def test_the_limits_of_a_process_outside_cannot_be_changed(place: Place) -> None:
    """With one second of processor time left the kernel would end the daemon."""
    with subprocess.Popen(["/bin/sleep", "60"]) as bystander:  # noqa: ASYNC220 - a start takes no time worth waiting for
        try:
            code = f"import resource; resource.prlimit({bystander.pid}, resource.RLIMIT_CPU, (1, 1))"
            finished = await place.python(code)
            limits = resource.prlimit(bystander.pid, resource.RLIMIT_CPU)
        finally:
            bystander.kill()

    assert finished.exit_code == 1
    assert limits == resource.getrlimit(resource.RLIMIT_CPU)


async def test_no_namespace_gives_powers_back(place: Place) -> None:
    """Much of the kernel can be attacked from there only."""
    finished = await place.run("unshare -U true; echo $?; unshare -r true; echo $?; (true) && echo forks")

    assert finished.output.split()[-1] == b"forks"
    assert finished.output.count(b"unshare failed") == 2, finished.output


async def test_the_shared_memory_of_others_cannot_be_attached(place: Place) -> None:
    libc = ctypes.CDLL(None)
    segment = libc.shmget(0, 4096, 0o1600)
    try:
        finished = await place.python(f"import ctypes; print(ctypes.CDLL(None).shmat({segment}, None, 0))")
    finally:
        libc.shmctl(segment, 0, None)

    assert segment >= 0
    assert finished.output == b"-1\n"


async def test_the_init_of_a_view_shows_nothing_of_itself(place: Place) -> None:
    finished = await place.run("cat /proc/1/environ /proc/1/maps; ls /proc/1/root/ /proc/1/cwd/; kill -9 1")

    assert place.form == "rules" or finished.output.count(b"denied") == 4, finished.output


async def test_a_command_is_bounded_and_goes_before_the_daemon_when_memory_runs_out(place: Place) -> None:
    finished = await place.run("bash -c 'cat /proc/self/oom_score_adj; ulimit -u; ulimit -f; ulimit -c'")
    score, processes, file_kib, core = map(int, finished.output.split())

    assert score >= 500
    assert processes <= (4096 if place.form == "view" else 16384)
    assert (file_kib * 1024, core) == (MOST_FILE_BYTES, 0)


async def test_a_file_without_end_ends(place: Place) -> None:
    """A sparse one: what counts is where it is written."""
    finished = await place.run(f"dd if=/dev/zero of=open/large bs=1 count=1 seek={MOST_FILE_BYTES}; ls open")

    assert (place.root / "open/large").stat().st_size <= MOST_FILE_BYTES, finished.output


def test_a_lower_limit_that_somebody_chose_stays(place: Place) -> None:
    with place.behind.report() as report:
        line = place.behind.command(["/bin/sh", "-c", "ulimit -f"], place.root, report).line
        told = subprocess.run(
            ["/bin/sh", "-c", 'ulimit -f 1000; exec "$@"', "sh", *line],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, pass_fds=(report.descriptor,), timeout=5, check=False,
        )  # fmt: skip
        report.check()

    assert told.stdout == b"1000\n"


@pytest.mark.parametrize(
    "script",
    [
        "echo 60 > /proc/sys/vm/swappiness",
        "echo h > /proc/sysrq-trigger",
        "unshare -U true",
        "umount keys",
        "chmod 755 keys",
        "mount -t tmpfs none /tmp",
        f"{sys.executable} -I -c 'import socket; socket.socket(socket.AF_UNIX)'",
    ],
)
def test_a_view_needs_no_landlock_to_hold(place: Place, script: str) -> None:
    """Before Linux 5.13 there is none, and before 6.12 it knows no abstract sockets, by which a display is reached."""
    if place.form == "rules":
        pytest.skip("there are no rules without it")
    assert _on_an_old_kernel(place, f"echo made > made && cat made && {script}") == b"made\n"


def test_rules_do_not_stand_without_landlock(place: Place) -> None:
    if place.form == "view":
        pytest.skip("a view stands")
    with pytest.raises(CannotConfine, match="landlock"):
        _on_an_old_kernel(place, "echo ran")


def _on_an_old_kernel(place: Place, script: str) -> bytes:
    """Return what a command prints that must fail at its end."""
    behind = Behind(place.walls, place.form)
    with behind.report() as report:
        command = behind.command(["/bin/sh", "-c", script], place.root, report).line
        ended = subprocess.run(
            [sys.executable, "-I", "-c", OLD_KERNEL, *command], env={"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            pass_fds=(report.descriptor,), timeout=5, check=False,
        )  # fmt: skip
        report.check()
    assert ended.returncode != 0
    return ended.stdout


async def test_a_name_of_any_bytes_can_be_a_root(place: Place) -> None:
    roots = [place.root / name for name in ("two words", "line\nbreak", "--", "--hide", os.fsdecode(b"\xff\xfe"))]
    for root in roots:
        root.mkdir()
    read = (*place.walls.read, place.root)
    finished = await place.run('for d in ./*; do echo in > "$d/made"; done', hide=(), read=read, write=tuple(roots))

    assert [root for root in roots if not (root / "made").exists()] == [], finished.output


async def test_hundreds_of_roots_are_no_problem(place: Place) -> None:
    roots = [place.root / f"open/{number}" for number in range(300)]
    for root in roots:
        root.mkdir()
    finished = await place.run(
        "echo in > open/299/made; echo in > open/made", write=(place.root / "open/0", *roots[1:])
    )

    assert (roots[299] / "made").read_text() == "in\n"
    assert not (place.root / "open/made").exists(), finished.output


async def test_a_server_of_its_own_can_be_reached(place: Place) -> None:
    """What is closed is the way out, not the loopback."""
    script = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname(), 2)"
    finished = await place.python(script, network=place.form == "rules")

    assert (finished.exit_code, finished.output) == (0, b"")
