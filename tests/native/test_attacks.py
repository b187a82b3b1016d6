"""Ways out of the walls by one system call each, tried from inside by a command that runs as the user of the daemon.

Every one prints GOT when it comes through; that it would is shown without walls, wherever trying does no harm.
"""

from __future__ import annotations

import ctypes
import os
import platform
import pty
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fermix.native.child import run_child
from tests.native.test_confine import SECRET, Place, place

__all__ = ["place"]

X86 = platform.machine() == "x86_64"
HANDLE_BYTES = 128
AT_FDCWD = -100
NAME_TO_HANDLE = 303 if X86 else 264

PRELUDE = """
import ctypes, errno, os, signal, socket, struct, sys, time
victim, secret, handle, terminal, abstract, queue, shared = sys.argv[1:]
victim = int(victim)
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"userfaultfd": (323, 282), "bpf": (321, 280), "perf": (298, 241), "open_by_handle": (304, 265),
           "pidfd_getfd": (438, 438), "io_uring": (425, 425), "open_tree": (428, 428), "fsopen": (430, 430),
           "execveat": (322, 281), "pivot_root": (155, 41), "process_madvise": (440, 440)}
def call(name, *arguments):
    return libc.syscall(numbers[name][arm], *arguments)
def got(what=True):
    if what:
        print("GOT", flush=True)
def read(path):
    got(canary in open(path, errors="replace").read())
"""


@dataclass(frozen=True)
class Attack:
    """`proven`: without walls it comes through, for root. `view_only`: rules do not hold it, as the decision says."""

    code: str
    proven: bool = True
    view_only: bool = False


ATTACKS = {
    "ptrace": Attack("got(libc.ptrace(16, victim, 0, 0) == 0)"),
    "memory by process_vm_readv": Attack(
        "class Piece(ctypes.Structure): _fields_ = [('at', ctypes.c_void_p), ('size', ctypes.c_size_t)]\n"
        "here = Piece(ctypes.addressof(ctypes.create_string_buffer(8)), 8); there = Piece(4096, 8)\n"
        "libc.process_vm_readv(victim, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)\n"
        "got(ctypes.get_errno() == errno.EFAULT)"
    ),
    "memory by its file": Attack("got(os.open(f'/proc/{victim}/mem', os.O_RDWR) >= 0)"),
    "variables": Attack("read(f'/proc/{victim}/environ')"),
    "root folder": Attack("read(f'/proc/{victim}/root{secret}')"),
    "working folder": Attack("read(f'/proc/{victim}/cwd/secret')"),
    "descriptor by its link": Attack("read(f'/proc/{victim}/fd/0')"),
    "descriptor by pidfd_getfd": Attack("got(call('pidfd_getfd', os.pidfd_open(victim), 0, 0) >= 0)"),
    "namespaces of a process outside": Attack("got(libc.setns(os.pidfd_open(victim), 0x20000) == 0)"),
    "signal by pidfd": Attack("signal.pidfd_send_signal(os.pidfd_open(victim), 0); got()"),
    "priority": Attack("os.setpriority(os.PRIO_PROCESS, victim, 5); got()", view_only=True),
    "processors": Attack("os.sched_setaffinity(victim, os.sched_getaffinity(victim)); got()", view_only=True),
    "own root, upwards": Attack("read('/proc/self/root/../..' + secret)"),
    "parent": Attack("os.kill(os.getppid(), signal.SIGKILL) if os.getppid() > 1 else 0; got(os.getppid() > 1)", False),
    "descriptors of the parent": Attack("got(os.readlink(f'/proc/{os.getppid()}/fd/0'))"),
    "handle of a file": Attack(
        "data = bytes.fromhex(handle)\n"
        "found = call('open_by_handle', os.open('.', os.O_RDONLY), ctypes.create_string_buffer(data, len(data)), 0)\n"
        "got(found >= 0)"
    ),
    "path descriptor": Attack("read('/proc/self/fd/%d' % os.open(secret, os.O_PATH))"),
    "path descriptor, linked": Attack(
        "held = os.open(secret, os.O_PATH)\n"
        "libc.linkat(-100, b'/proc/self/fd/%d' % held, -100, b'linked', 0x400); read('linked')",
        False,
    ),
    "path descriptor, executed": Attack(
        "held = os.open(secret + '.sh', os.O_PATH); os.set_inheritable(held, True)\n"
        "none = (ctypes.c_char_p * 2)(b'sh', None)\n"
        "call('execveat', held, b'', none, none, 0x1000)"
    ),
    "program in memory": Attack(
        "held = os.memfd_create('cat', 0); os.write(held, open('/bin/cat', 'rb').read())\n"
        "os.execv(f'/proc/self/fd/{held}', ['cat', secret + '.out'])"
    ),
    "set-user-ID": Attack(
        "import shutil, subprocess; shutil.copy('/bin/sh', 'open/sh'); os.chmod('open/sh', 0o6755)\n"
        "lines = subprocess.run(['open/sh', '-c', 'cat /proc/self/status'], capture_output=True, text=True).stdout\n"
        "got('NoNewPrivs:\\t0' in lines)"
    ),
    "mount": Attack("got(libc.mount(b'none', b'open', b'tmpfs', 0, None) == 0)", False),
    "mount, writable again": Attack("got(libc.mount(None, b'/usr', None, 32 | 4096, None) == 0)", False),
    "mount by open_tree": Attack("got(call('open_tree', -100, b'/', 1) >= 0)"),
    "mount, layered": Attack("got(call('fsopen', b'overlay', 0) >= 0)"),
    "unmount": Attack("got(libc.umount2(b'/proc', 2) == 0)", False),
    "chroot": Attack("os.chroot('open'); got()"),
    "new root": Attack("got(call('pivot_root', b'.', b'.') == 0)", False),
    "device": Attack("os.mknod('open/disk', 0o60666, os.makedev(1, 0)); got()"),
    "faults": Attack("got(call('userfaultfd', 1) >= 0)"),
    "program in the kernel": Attack(
        "asked = ctypes.create_string_buffer(struct.pack('IIII', 2, 4, 4, 1) + bytes(112), 128)\n"
        "got(call('bpf', 0, asked, 128) >= 0)"
    ),
    "counters": Attack(
        "asked = ctypes.create_string_buffer(struct.pack('IIQ', 1, 112, 0) + bytes(96), 112)\n"
        "got(call('perf', asked, 0, -1, -1, 0) >= 0)"
    ),
    "ring": Attack("got(call('io_uring', 4, ctypes.create_string_buffer(120)) >= 0)"),
    "watch of everything": Attack("got(libc.fanotify_init(0, 0) >= 0)"),
    "watch of a folder outside": Attack(
        "got(libc.inotify_add_watch(libc.inotify_init(), os.fsencode(os.path.dirname(secret)), 0xfff) >= 0)",
        view_only=True,
    ),
    "queue": Attack("got(libc.msgrcv(int(queue), ctypes.create_string_buffer(64), 8, 0, 0o4000) >= 0)", view_only=True),
    "memory by its key": Attack("got(libc.shmat(int(shared), None, 0) not in (-1, 0xffffffff))"),
    "shared file": Attack("got(os.path.exists('/dev/shm/' + abstract))", view_only=True),
    "socket without a file": Attack("socket.socket(socket.AF_UNIX).connect(chr(0) + abstract); got()"),
    "raw packets": Attack("socket.socket(socket.AF_PACKET, socket.SOCK_RAW); got()"),
    "raw addresses": Attack("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1); got()"),
    "terminal outside": Attack("got(os.open(terminal, os.O_RDWR | os.O_NOCTTY) >= 0)"),
    "clock": Attack("time.clock_settime(time.CLOCK_REALTIME, time.time()); got()", False),
    "clock of its own": Attack("got(libc.unshare(0x80) == 0)"),
    "name of the machine": Attack("socket.sethostname(socket.gethostname()); got()"),
    "program that dumps": Attack("got(os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY) >= 0)"),
    "program by its beginning": Attack("got(os.open('/proc/sys/fs/binfmt_misc/register', os.O_WRONLY) >= 0)", False),
    "tree of the kernel": Attack("got(os.listdir('/sys'))"),
    "groups of processes": Attack("got(os.open('/sys/fs/cgroup/cgroup.procs', os.O_WRONLY) >= 0)", False),
    "limits raised": Attack(
        "import resource; soft, hard = resource.getrlimit(resource.RLIMIT_CORE)\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (4096, 4096)); got()"
    ),
    "filter lifted": Attack("got(libc.prctl(22, 0, 0, 0, 0) == 0 or libc.prctl(38, 0, 0, 0, 0) == 0)", False),
    "powers raised": Attack("got(libc.prctl(47, 2, 21, 0, 0) == 0 or os.setgroups([]) is None)"),
}


@dataclass(frozen=True)
class Outside:
    """What lies outside the walls, as the arguments of an attack."""

    arguments: tuple[str, ...]
    victim: subprocess.Popen[bytes]


@pytest.fixture
def outside(place: Place) -> Iterator[Outside]:
    libc = ctypes.CDLL(None)
    secret, name = place.outside / "secret", f"fermix-{os.getpid()}"
    (place.outside / "secret.sh").write_text("#!/bin/sh\necho GOT\n")
    (place.outside / "secret.sh").chmod(0o755)
    (place.outside / "secret.out").write_text("GOT\n")
    master, slave = pty.openpty()
    queue, shared = libc.msgget(0, 0o1600), libc.shmget(0, 4096, 0o1600)
    libc.msgsnd(queue, (ctypes.c_long * 2)(1, 1), 8, 0)
    with (
        secret.open(encoding="ascii") as stdin,
        tempfile.NamedTemporaryFile(dir="/dev/shm", prefix=name) as file,
        socket.socket(socket.AF_UNIX) as listener,
        subprocess.Popen(["/bin/sleep", "60"], env={"KEY": SECRET}, stdin=stdin, cwd=place.outside) as victim,
    ):
        abstract = Path(file.name).name
        listener.bind(f"\0{abstract}")
        listener.listen()
        given = (victim.pid, secret, _handle(secret), os.ttyname(slave), abstract, queue, shared)
        yield Outside(tuple(map(str, given)), victim)
        victim.kill()
    libc.msgctl(queue, 0, None)
    libc.shmctl(shared, 0, None)
    os.close(master)
    os.close(slave)


def _handle(path: Path) -> str:
    handle, mount = (
        ctypes.create_string_buffer(HANDLE_BYTES.to_bytes(4, sys.byteorder), HANDLE_BYTES + 8),
        ctypes.c_int(),
    )
    ctypes.CDLL(None).syscall(NAME_TO_HANDLE, AT_FDCWD, bytes(path), handle, ctypes.byref(mount), 0)
    return handle.raw.hex()


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_way_out_is_closed(place: Place, outside: Outside, name: str) -> None:
    """Issue 4, commands run confined: no mocks."""
    attack = ATTACKS[name]
    if attack.view_only and place.form == "rules":
        pytest.skip("rules do not hold it, as the decision page says")
    script = place.root / "attack.py"
    script.write_text(f"arm, canary = {int(not X86)}, {SECRET!r}\n{PRELUDE}{attack.code}", encoding="utf-8")
    line = [sys.executable, "-I", str(script), *outside.arguments]

    async def attempt(behind: bool) -> bytes:
        walls = place.behind if behind else None
        finished = await run_child(line, cwd=place.root, env={"PATH": os.environ["PATH"]}, behind=walls)
        return finished.output

    assert b"GOT" not in await attempt(behind=True)
    assert outside.victim.poll() is None
    if attack.proven and os.getuid() == 0:
        free = await attempt(behind=False)
        assert b"GOT" in free, free


async def test_every_mount_of_a_view_takes_no_set_user_id_and_no_device(place: Place) -> None:
    if place.form == "rules":
        pytest.skip("there are no mounts of its own")
    finished = await place.run("cat /proc/self/mountinfo")
    mounts = [line.split() for line in finished.output.decode().splitlines()]

    assert [one[4] for one in mounts if "nosuid" not in one[5].split(",")] == []
    assert [one[4] for one in mounts if "nodev" not in one[5].split(",") and not one[4].startswith("/dev/")] == []
    assert [one[4] for one in mounts if any(field.startswith(("shared:", "master:")) for field in one[6:])] == []
