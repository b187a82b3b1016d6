"""A command behind walls that the kernel holds: what it may see, change and reach. Used by `child.py`.

`confine` (confine.c) builds them and stays until all that came of the command is gone. There are two forms: a view,
in which nothing exists but the named paths, and rules on the real file system where namespaces are forbidden. On macOS
the system's own program takes its place (seatbelt.py).
What must stay true: a command runs behind all of its walls or not at all.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fermix.errors import Unavailable
from fermix.native import seatbelt
from fermix.native.seatbelt import Access

PROGRAM = Path(__file__).with_name("confine")
PROBE_S = 5.0
PAUSE_S = 0.3
NO_ROOM = (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ETIMEDOUT, errno.EBUSY)
REPORT_BYTES = 8_192
MOST_PATHS = 512  # as in confine.c
MOST_FILE_BYTES = 16 * 1024**3  # no build makes a larger one, and a runaway command fills no disk with one

Form = Literal["view", "rules", "seatbelt"]


class CannotConfine(Unavailable):
    """A wall could not be built, so the command did not start. `part` is the one that failed, `number` the errno."""

    def __init__(self, part: str, number: int, path: str) -> None:
        at = f" at {path}" if path else ""
        super().__init__(f"the command cannot be confined: {part}{at}: {os.strerror(number)}")
        self.part = part
        self.number = number


@dataclass(frozen=True, slots=True)
class Walls:
    """What a command may see, by real paths: `read` also to execute, `write` also to change. `hide` stays closed
    although it lies below one of them; a path below a hidden one can be open again. `links` are symbolic links of the
    view by their target. `tmp` is the folder that it sees as /tmp. Without `network` it reaches nothing but itself.
    """

    read: tuple[Path, ...]
    write: tuple[Path, ...]
    tmp: Path
    hide: tuple[Path, ...] = ()
    links: Mapping[Path, str] = field(default_factory=dict[Path, str])
    network: bool = True


@dataclass(frozen=True, slots=True)
class Kernel:
    """What this system can hold. `form` None: nothing, `problem` says why; `offline` says whether the network can be
    closed to a command; `missing` says in words what is not held although commands are confined.
    """

    form: Form | None
    offline: bool
    problem: str = ""
    landlock: int = 0
    """The version of its interface that the kernel has; 0 for none."""

    @property
    def missing(self) -> tuple[str, ...]:
        if self.form == "seatbelt":
            return (seatbelt.UNPROVEN,)
        if self.form == "rules":
            return (NO_VIEW, *(what for version, what in NEEDS_LANDLOCK if self.landlock < version))
        return ()


NO_VIEW = "a command can change the mode and the times of its user's files, and see the command lines of others"
NEEDS_LANDLOCK = (
    (3, "a command can empty files outside of its folders (Landlock 3, Linux 6.2)"),
    (5, "a command can control devices that lie in its folders (Landlock 5, Linux 6.10)"),
    (6, "a command can signal other processes of its user (Landlock 6, Linux 6.12)"),
)
"""What only rules need of Landlock, and since when it has it. Sockets are held by a filter of system calls."""


def probe(walls: Walls) -> Kernel:
    """Find out by trying, once per daemon. `walls` must let `/bin/sh` run. Blocking, some milliseconds."""
    problem, landlock = "", _landlock()
    for form in forms(sys.platform):
        try:
            _try_patiently(Behind(walls, form))
        except CannotConfine as error:
            problem = problem or str(error)
            continue
        return Kernel(form, offline=_can_close_network(walls, form), problem=problem, landlock=landlock)
    problem = problem or f"nothing holds commands on {sys.platform}"
    return Kernel(None, offline=False, problem=problem, landlock=landlock)


def forms(platform: str) -> tuple[Form, ...]:
    """Return the forms of walls that a system may have, the best first."""
    if platform == "linux":
        return ("view", "rules")
    return ("seatbelt",) if platform == "darwin" else ()


def _landlock() -> int:
    if sys.platform != "linux":
        return 0
    try:
        told = subprocess.run([str(PROGRAM), "--landlock"], env={}, capture_output=True, timeout=PROBE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0  # the same program builds the walls, and what keeps it from running is told there
    return int(told.stdout)


@dataclass(frozen=True, slots=True)
class Behind:
    """The walls of one command and how they are built."""

    walls: Walls
    form: Form

    @contextmanager
    def report(self) -> Generator[Report]:
        """Open the place where a wall that cannot be built is reported."""
        reading, writing = os.pipe()
        try:
            os.set_blocking(reading, False)
            yield Report(reading, writing)
        finally:
            os.close(reading)
            os.close(writing)

    def command(self, argv: Sequence[str], cwd: Path, report: Report) -> Launch:
        """Return what runs `argv` in the folder `cwd` behind the walls.

        Raises: CannotConfine when there are too many paths.
        """
        walls = self.walls
        if self.form == "seatbelt":
            line = seatbelt.command_line(argv, self._paths(), tmp=walls.tmp, network=walls.network)
            return Launch(line, cwd, ())
        options = [text for path, option in self._paths() for text in (option, str(path))]
        links = [text for place, target in walls.links.items() for text in ("--link", str(place), target)]
        switches = [*(["--no-view"] if self.form == "rules" else []), *([] if walls.network else ["--no-network"])]
        fixed = ["--parent", str(os.getpid()), "--report", str(report.descriptor)]
        limits = ["--limit", "core=0", "--limit", f"file_bytes={MOST_FILE_BYTES}"]
        places = ["--tmp", str(walls.tmp), "--cwd", str(cwd)]
        line = [str(PROGRAM), *fixed, *limits, *options, *links, *switches, *places, "--", *argv]
        return Launch(line, Path("/"), (report.descriptor,))

    def variables(self) -> dict[str, str]:
        """Return the variables by which programs find their temporary folder, and caches they keep in the home else."""
        place = "/tmp" if self.form == "view" else str(self.walls.tmp)
        caches = {"XDG_CACHE_HOME": "cache", "npm_config_cache": "cache/npm", "GOMODCACHE": "cache/go"}
        return {"TMPDIR": place, **{name: f"{place}/{folder}" for name, folder in caches.items()}}

    def _paths(self) -> list[tuple[Path, Access]]:
        """What is open and what is hidden, every path after those it lies below. Raises: CannotConfine."""
        walls = self.walls
        shown: list[tuple[Path, Access]] = [*_each(walls.read, "--read"), *_each(walls.write, "--write")]
        if self.form == "rules":
            shown = [one for path, access in shown for one in _each(beside(path, walls.hide), access)]
        else:
            inside = above(walls.hide, walls.write) if self.form == "view" else []
            shown += [*_each(inside, "--write"), *_each(walls.hide, "--hide")]
        if len(shown) > MOST_PATHS:
            raise CannotConfine("usage", errno.E2BIG, "")
        return sorted(shown, key=lambda one: len(one[0].parts))


@dataclass(frozen=True, slots=True)
class Launch:
    """How the daemon starts a confined command: the whole line, the folder it starts in, and what it gets open."""

    line: Sequence[str]
    cwd: Path
    passed: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A pipe; its writing end goes to `confine`, which keeps it from the command."""

    reading: int
    descriptor: int

    def check(self) -> None:
        """Look once the command has ended. Raises: OSError for a program or folder it cannot use; CannotConfine."""
        try:
            line = os.read(self.reading, REPORT_BYTES).decode("utf-8", "replace").partition("\n")[0]
        except BlockingIOError:
            return
        part, number, path = line.split(" ", 2)
        if part in ("program", "folder"):
            raise OSError(int(number), os.strerror(int(number)), path)
        raise CannotConfine(part, int(number), path)


def _each(paths: Iterable[Path], access: Access) -> Iterator[tuple[Path, Access]]:
    for path in paths:
        yield path, access


def beside(path: Path, hidden: Iterable[Path]) -> list[Path]:
    """Return what makes up a folder except for the hidden paths below it, for rules that can only open.

    What is new at the top of a folder that holds something hidden stays closed.
    """
    below = [one for one in hidden if one.is_relative_to(path)]
    if not below:
        return [path]
    if path in below or not path.is_dir():
        return []
    return [part for entry in sorted(path.iterdir()) if not entry.is_symlink() for part in beside(entry, below)]


def above(hidden: Collection[Path], folders: Collection[Path]) -> list[Path]:
    """Return the folders between an open folder and what is hidden in it.

    Shown as places of their own they cannot be renamed; the next command would find the hidden under the new name.
    """
    marks = {*hidden, *folders}
    is_open = {*folders}.difference(hidden)
    found: set[Path] = set()
    for path in hidden:
        line = [folder for folder in path.parents if folder not in marks] if os.path.lexists(path) else []
        found.update(folder for folder in line if next(filter(marks.__contains__, folder.parents), None) in is_open)
    return sorted(found)


def _can_close_network(walls: Walls, form: Form) -> bool:
    try:
        _try(Behind(replace(walls, network=False), form))
    except CannotConfine:
        return False
    return True


def _try_patiently(behind: Behind) -> None:
    """Try, and once more after a moment in which the system had no room: the answer counts as long as the daemon runs.

    Raises: CannotConfine.
    """
    try:
        _try(behind)
    except CannotConfine as error:
        if error.number not in NO_ROOM:
            raise
        time.sleep(PAUSE_S)
        _try(behind)


def _try(behind: Behind) -> None:
    """Raises: CannotConfine."""
    with behind.report() as report:
        launch = behind.command(["/bin/sh", "-c", ":"], Path("/"), report)
        try:
            subprocess.run(
                launch.line, cwd=launch.cwd, env={}, stdin=subprocess.DEVNULL, capture_output=True,
                pass_fds=launch.passed, timeout=PROBE_S, check=True,
            )  # fmt: skip
            report.check()
        except subprocess.CalledProcessError as error:
            report.check()
            raise CannotConfine("program", errno.EACCES, "/bin/sh") from error
        except subprocess.TimeoutExpired as error:
            raise CannotConfine("program", errno.ETIMEDOUT, "/bin/sh") from error
        except OSError as error:
            raise CannotConfine("program", error.errno or errno.EIO, launch.line[0]) from error
