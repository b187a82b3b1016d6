"""The walls of a command, tried from inside on this very kernel, in both of their forms. Nothing is mocked."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fermix.native import confine
from fermix.native.child import Finished, Limits, run_child
from fermix.native.confine import Behind, CannotConfine, Form, Walls, beside, probe
from fermix.native.program import OWN_FOLDER
from tests.native.test_child import processes_with

SYSTEM = [Path(text) for text in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt")]
SECRET = "canary-7d1f"
CONNECT = "import socket; socket.create_connection(('127.0.0.1', {port}), 2).sendall(b'in')"
SEND = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'in', ('127.0.0.1', {port}))"
UNIX = "import socket; socket.socket(socket.AF_UNIX).connect('{path}')"


@dataclass(frozen=True)
class Place:
    """A small machine: a writable root with something hidden in it, and a secret outside of it."""

    root: Path
    outside: Path
    walls: Walls
    form: Form

    @property
    def behind(self) -> Behind:
        return Behind(self.walls, self.form)

    async def run(self, script: str, *, limits: Limits | None = None, **changes: object) -> Finished:
        walls = replace(self.walls, **changes)  # pyright: ignore[reportArgumentType] - fields of Walls
        return await run_child(
            ["/bin/sh", "-c", script],
            cwd=self.root,
            env={"PATH": os.environ["PATH"], "HOME": str(self.outside)},
            limits=limits or Limits(timeout_s=10),
            behind=Behind(walls, self.form),
        )

    async def python(self, code: str, **changes: object) -> Finished:
        return await self.run(f'/usr/bin/env -i PATH="$PATH" {sys.executable} -I -c "{code}"', **changes)


@pytest.fixture(params=["view", "rules"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    form: Form = request.param
    if form == "view" and (problem := _no_view(tmp_path)):
        pytest.skip(f"this system forbids what a view needs: {problem}")
    root, outside, tmp = tmp_path / "root", tmp_path / "outside", tmp_path / "tmp"
    for folder in (root / "keys", root / "open", outside, tmp):
        folder.mkdir(parents=True)
    for path in (root / "keys/id", root / "token", outside / "secret"):
        path.write_text(SECRET)
    (root / "open/note").write_text("note")
    links = {path: str(path.readlink()) for path in SYSTEM if path.is_symlink()}
    folders = [path for path in SYSTEM if path.is_dir() and not path.is_symlink()]
    own = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    read = tuple({*folders, *(path for path in own if not path.is_relative_to("/usr"))})
    return Place(root, outside, Walls(read, (root,), tmp, (root / "keys", root / "token"), links), form)


@pytest.fixture
def mark() -> Iterator[str]:
    text = f"mark-{secrets.token_hex(8)}"
    yield text
    assert processes_with(text) == []


async def test_a_command_works_in_its_root_and_sees_nothing_outside(place: Place) -> None:
    """SBX: no path policy, the kernel says no."""
    there = place.outside
    script = f"cat open/note; echo new > open/made; cat {there}/secret; ls {there}; echo x > {there}/made"
    finished = await place.run(script)

    assert b"note" in finished.output
    assert SECRET.encode() not in finished.output
    assert (place.root / "open/made").read_text() == "new\n"
    assert sorted(path.name for path in place.outside.iterdir()) == ["secret"]


@pytest.mark.parametrize(
    "script",
    [
        "cat keys/id token",
        "cp -r keys open/copy; cat open/copy/id",
        "ln token open/linked; cat open/linked",
        "ln keys/id open/linked; cat open/linked",
        "ln -s ../token open/link; cat open/link",
        "mv keys open/moved; cat open/moved/id",
        "chmod -R 777 keys token; cat keys/id token",
        "umount keys; umount -l token; cat keys/id token",
        "cat /proc/*/root$PWD/token /proc/*/cwd/token",
        "cd /proc/1/cwd && cat token",
    ],
)
async def test_what_is_hidden_inside_a_root_stays_closed(place: Place, script: str) -> None:
    assert SECRET.encode() not in (await place.run(script)).output
    assert (place.root / "token").read_text() == (place.root / "keys/id").read_text() == SECRET


async def test_what_may_only_be_read_cannot_be_changed(place: Place) -> None:
    library = place.outside / "library"
    library.mkdir()
    (library / "tool").write_text("#!/bin/sh\necho ran\n")
    (library / "tool").chmod(0o755)
    script = f"{library}/tool; echo no > {library}/made; echo no > {library}/tool; rm {library}/tool"
    finished = await place.run(script, read=(*place.walls.read, library))

    assert finished.output.startswith(b"ran\n")
    assert [path.name for path in library.iterdir()] == ["tool"]
    assert "ran" in (library / "tool").read_text()


async def test_a_temporary_folder_is_its_own_and_the_real_one_is_not_seen(place: Place, tmp_path: Path) -> None:
    variables = Behind(place.walls, place.form).variables()
    await place.run(f"echo mine > {variables['TMPDIR']}/note")

    assert (place.walls.tmp / "note").read_text() == "mine\n"
    assert b"sockets" not in (await place.run("ls /tmp /var/tmp /run")).output


@pytest.mark.parametrize(("code", "kind"), [(CONNECT, socket.SOCK_STREAM), (SEND, socket.SOCK_DGRAM)])
async def test_without_network_nothing_gets_out(place: Place, code: str, kind: socket.SocketKind) -> None:
    """NET: TCP and UDP alike; with the network the same command gets through."""
    with socket.socket(socket.AF_INET, kind) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(0.2)
        if kind is socket.SOCK_STREAM:
            listener.listen()
        attempt = code.format(port=listener.getsockname()[1])
        closed = await place.python(attempt, network=False)
        with pytest.raises(TimeoutError):
            _arrived(listener)
        opened = await place.python(attempt)

        assert (opened.exit_code, opened.output, _arrived(listener)) == (0, b"", b"in")
    assert closed.exit_code != 0 or kind is socket.SOCK_DGRAM


async def test_a_socket_outside_cannot_be_reached(place: Place, tmp_path: Path) -> None:
    """A desktop's bus or a container service would run anything for whoever connects."""
    path = tmp_path / "bus"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        finished = await place.python(UNIX.format(path=path))

    assert finished.exit_code == 1
    assert b"Error" in finished.output


async def test_a_command_has_no_power_and_no_way_to_get_any(place: Place) -> None:
    finished = await place.run(f"cat /proc/self/status; ls /proc/self/fd; kill -0 {os.getpid()}; unshare -Urm id")

    lines = dict(line.split(":\t") for line in finished.output.decode().splitlines() if ":\t" in line)
    assert (lines["NoNewPrivs"], int(lines["CapEff"], 16), int(lines["CapPrm"], 16)) == ("1", 0, 0)
    assert lines["SigIgn"] == "0000000000000000"
    assert finished.output.decode().split("nonvoluntary_ctxt_switches:")[1].split()[1:5] == ["0", "1", "2", "3"]
    assert finished.exit_code != 0


@pytest.mark.parametrize(
    ("script", "exit_code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", -15), ("kill -9 $$", -9), ("kill -SEGV $$", -11)],
)
async def test_an_end_is_told_as_it_was(place: Place, script: str, exit_code: int) -> None:
    assert (await place.run(script)).exit_code == exit_code


@pytest.mark.parametrize("ending", ["exit 0", "exec sleep 60"])
async def test_nothing_of_a_command_is_left(place: Place, mark: str, ending: str) -> None:
    """EXE: sessions of their own, double forks and ignored signals are no way out."""
    leave = (
        f"(setsid sh -c 'trap \"\" TERM HUP; sleep 60; : {mark}' &); (sh -c 'setsid sleep 60 & : {mark}' &); sleep 0.1"
    )
    await place.run(f"{leave}; {ending}", limits=Limits(timeout_s=1, grace_s=0.05))

    assert processes_with(mark) == []


async def test_all_of_a_command_dies_with_the_daemon(place: Place, mark: str) -> None:
    """A daemon that is killed sweeps nothing: the keeper does."""
    leave = f"(setsid sh -c 'trap \"\" TERM; sleep 60; : {mark}' &); sleep 60"
    behind = Behind(place.walls, place.form)
    call = f"run_child(['/bin/sh', '-c', sys.argv[1]], cwd=Path('/'), env={{}}, limits=Limits(60), behind={behind!r})"
    code = f"""
import asyncio, sys
from pathlib import Path, PosixPath
from fermix.native.child import run_child, Limits
from fermix.native.confine import Behind, Walls
print("ready", flush=True)
asyncio.run({call})
"""
    daemon = subprocess.Popen(  # noqa: ASYNC220 - a start takes no time worth waiting for
        [sys.executable, "-c", code, leave], stdout=subprocess.PIPE, cwd=OWN_FOLDER, env=dict(os.environ)
    )
    assert daemon.stdout is not None
    assert daemon.stdout.readline() == b"ready\n"
    await _until(lambda: len(processes_with(mark)) >= 4)

    daemon.send_signal(signal.SIGKILL)
    daemon.wait(5)
    daemon.stdout.close()

    await _until(lambda: processes_with(mark) == [])


async def test_a_program_that_is_not_there_is_told_from_a_wall_that_cannot_stand(place: Place, tmp_path: Path) -> None:
    behind = Behind(place.walls, place.form)
    with pytest.raises(FileNotFoundError):
        await run_child(["no-such-program"], cwd=place.root, env={}, behind=behind)
    with pytest.raises(FileNotFoundError):
        await run_child(["/bin/sh"], cwd=place.root / "no-such-folder", env={}, behind=behind)

    (tmp_path / "swapped").symlink_to(place.outside)
    with pytest.raises(CannotConfine, match="swapped"):
        await place.run("echo ran > ran", write=(place.root, tmp_path / "swapped"))
    assert not (place.root / "ran").exists()


async def test_below_a_hidden_folder_something_can_be_open(place: Place) -> None:
    inner = place.root / "keys/inner"
    inner.mkdir()
    finished = await place.run("echo in > keys/inner/made; cat keys/id; ls keys", write=(place.root, inner))

    assert (inner / "made").read_text() == "in\n"
    assert SECRET.encode() not in finished.output


def test_what_the_kernel_holds_is_found_out_by_trying(place: Place, tmp_path: Path) -> None:
    kernel = probe(place.walls)

    assert kernel.offline
    assert kernel.form == ("rules" if _no_view(tmp_path) else "view")
    assert (kernel.problem == "") == (kernel.form == "view")


def test_rules_open_the_siblings_of_what_is_hidden(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for name in ("a/b/secret", "a/b/near", "a/far", "c"):
        (top / name).mkdir(parents=True)

    assert beside(top, [top / "a/b/secret"]) == [top / "a/b/near", top / "a/far", top / "c"]


def _no_view(folder: Path) -> str:
    """Say why there is none, by a way of its own: namespaces that the system's own program cannot have either."""
    tried = subprocess.run(["unshare", "-Urmpf", "true"], cwd=folder, capture_output=True, text=True, check=False)
    return tried.stderr


def _arrived(listener: socket.socket) -> bytes:
    if listener.type is socket.SOCK_DGRAM:
        return listener.recv(10)
    with listener.accept()[0] as connection:
        return connection.recv(10)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(("number", "tries"), [(errno.ENOSPC, 2), (errno.EPERM, 1)])
def test_a_moment_without_room_does_not_decide_for_the_life_of_a_daemon(
    monkeypatch: pytest.MonkeyPatch, number: int, tries: int
) -> None:
    tried: list[Behind] = []

    def refuse_once(behind: Behind) -> None:
        tried.append(behind)
        if len(tried) == 1:
            raise CannotConfine("view", number, "")

    monkeypatch.setattr(confine, "_try", refuse_once)
    monkeypatch.setattr(confine, "PAUSE_S", 0)
    with suppress(CannotConfine):
        confine._try_patiently(Behind(Walls((), (), Path("/")), "view"))

    assert len(tried) == tries
