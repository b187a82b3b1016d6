"""Another program of the same user looks into the daemon, and the daemon still sees all it needs of itself."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from fermix.native.private import used
from tests.native.test_sweep import NOBODY, ROOT

LOOK = """
import ctypes, os, sys
daemon, libc = int(sys.argv[1]), ctypes.CDLL(None)
for name in ("environ", "mem", "maps", "fd", "cwd", "root"):
    path = f"/proc/{daemon}/{name}"
    try:
        os.listdir(path) if name in ("fd", "cwd", "root") else open(path, "rb").close()
    except PermissionError:
        continue
    print(name)
print("traced" if libc.ptrace(0x4206, daemon, 0, 0) == 0 else "closed")
"""

DAEMON = """
import asyncio, ctypes, encodings.ascii, os, socket, subprocess, sys, tempfile
from pathlib import Path
from fermix.native.child import Child, Limits, run_child
from fermix.native.confine import Behind, Walls, probe
from fermix.native.opener import open_beneath
from fermix.native.peer import is_attended, peer_of
from fermix.native.private import become_private, used
from fermix.native.sweep import children

async def main(folder):
    private = "private" in sys.argv
    env = {"PATH": os.defpath}
    read = tuple(path for path in map(Path, ("/usr", "/bin", "/lib", "/lib64", "/etc")) if not path.is_symlink())
    links = {Path(path): os.readlink(path) for path in ("/bin", "/lib", "/lib64") if os.path.islink(path)}
    (folder / "tmp").mkdir()
    walls = Walls(read, (), folder / "tmp", links=links)
    kernel = probe(walls)
    print(kernel.form)
    if private:
        become_private()
    look = [sys.argv[1], "-I", "-c", sys.argv[2], str(os.getpid())]
    looked = subprocess.run(look, capture_output=True, text=True)
    print(looked.stdout.split(), looked.stderr)
    script = "setsid sleep 600 & (env -i setsid sleep 600 &) ; echo ran; exit 7"
    for behind in (None, Behind(walls, kernel.form)):
        finished = await run_child(["/bin/sh", "-c", script], cwd=Path("/"), env=env, behind=behind)
        print(finished.output, finished.exit_code, len(children()))
    async with Child.open(["/bin/sh", "-c", "echo up; sleep 600"], cwd=folder, env=env) as child:
        print(await anext(child.lines()))
    (folder / "note").write_text("note")
    print(os.read(open_beneath(folder, Path("note"), os.O_RDONLY), 9))
    one, other = socket.socketpair()
    peer = peer_of(one)
    print(peer.uid == os.getuid(), peer.pid == os.getpid(), is_attended(peer, 1 << 22))
    now = used()
    print(now.memory_bytes > 1_000_000, now.open_files > 3)

with tempfile.TemporaryDirectory() as name:
    os.chown(name, {nobody}, {nobody})
    os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
    os.environ["KEY"] = "secret"
    # becoming another user closed it already: what an ordinary start has is set again
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
    asyncio.run(main(Path(name)))
"""


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="needs root, to become an ordinary user")
@pytest.mark.parametrize("private", [False, True])
def test_no_other_program_of_its_user_looks_into_the_daemon(private: bool) -> None:
    """SEC-05: a helper without walls cannot read the keys that the daemon was started with."""
    program = textwrap.dedent(DAEMON).replace("{nobody}", str(NOBODY))
    done = subprocess.run(
        [sys.executable, "-c", program, "/usr/bin/python3", LOOK, *(["private"] if private else [])],
        cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    form, looked, *rest = done.stdout.splitlines()
    assert form in ("view", "rules")
    assert looked == ("['closed'] " if private else "['environ', 'mem', 'maps', 'fd', 'cwd', 'root', 'traced'] ")
    assert rest == [
        "b'ran\\n' 7 0", "b'ran\\n' 7 0", "up", "b'note'", "True True True", "True True"
    ]  # fmt: skip


def test_what_is_used_is_told() -> None:
    assert (used().memory_bytes or 0) > 1_000_000
    assert used().open_files
