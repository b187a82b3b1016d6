"""A command behind walls that the kernel holds: what it may see, change and reach. Used by `child.py`.

`confine` (confine.c) builds them and stays until all that came of the command is gone. There are two forms: a view,
in which nothing exists but the named paths, and rules on the real file system where namespaces are forbidden.
What must stay true: a command runs behind all of its walls or not at all.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fermix.errors import Unavailable

PROGRAM = Path(__file__).with_name("confine")
PROBE_S = 5.0
REPORT_BYTES = 8_192
MOST_PATHS = 512  # as in confine.c

Form = Literal["view", "rules"]


class CannotConfine(Unavailable):
    """A wall could not be built, so the command did not start. `part` is the one that failed."""

    def __init__(self, part: str, number: int, path: str) -> None:
        at = f" at {path}" if path else ""
        super().__init__(f"the command cannot be confined: {part}{at}: {os.strerror(number)}")
        self.part = part


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
    closed to a command.
    """

    form: Form | None
    offline: bool
    problem: str = ""


def probe(walls: Walls) -> Kernel:
    """Find out by trying, once per daemon. `walls` must let `/bin/sh` run. Blocking, some milliseconds."""
    if sys.platform != "linux":
        return Kernel(None, offline=False, problem=f"commands are not confined on {sys.platform}")
    problem = ""
    for form in ("view", "rules"):
        try:
            _try(Behind(walls, form))
        except CannotConfine as error:
            problem = problem or str(error)
            continue
        return Kernel(form, offline=_can_close_network(walls, form), problem=problem)
    return Kernel(None, offline=False, problem=problem)


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

    def command(self, argv: Sequence[str], cwd: Path, report: Report) -> list[str]:
        """Return the command line that runs `argv` in the folder `cwd` behind the walls.

        Raises: CannotConfine when there are too many paths.
        """
        walls = self.walls
        options = [text for path, option in self._paths() for text in (option, str(path))]
        links = [text for place, target in walls.links.items() for text in ("--link", str(place), target)]
        switches = [*(["--no-view"] if self.form == "rules" else []), *([] if walls.network else ["--no-network"])]
        fixed = ["--parent", str(os.getpid()), "--report", str(report.descriptor), "--limit", "core=0"]
        places = ["--tmp", str(walls.tmp), "--cwd", str(cwd)]
        return [str(PROGRAM), *fixed, *options, *links, *switches, *places, "--", *argv]

    def variables(self) -> dict[str, str]:
        """Return the variables by which programs find their temporary folder, and caches they keep in the home else."""
        place = "/tmp" if self.form == "view" else str(self.walls.tmp)
        caches = {"XDG_CACHE_HOME": "cache", "npm_config_cache": "cache/npm", "GOMODCACHE": "cache/go"}
        return {"TMPDIR": place, **{name: f"{place}/{folder}" for name, folder in caches.items()}}

    def _paths(self) -> list[tuple[Path, str]]:
        """What is open and what is hidden, every path after those it lies below. Raises: CannotConfine."""
        walls = self.walls
        shown = [(path, "--read") for path in walls.read] + [(path, "--write") for path in walls.write]
        if self.form == "view":
            shown += [(path, "--write") for path in above(walls.hide, walls.write)]
            shown += [(path, "--hide") for path in walls.hide]
        else:
            shown = [(part, option) for path, option in shown for part in beside(path, walls.hide)]
        if len(shown) > MOST_PATHS:
            raise CannotConfine("usage", errno.E2BIG, "")
        return sorted(shown, key=lambda one: len(one[0].parts))


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


def _try(behind: Behind) -> None:
    """Raises: CannotConfine."""
    with behind.report() as report:
        argv = behind.command(["/bin/sh", "-c", ":"], Path("/"), report)
        try:
            subprocess.run(
                argv, env={}, stdin=subprocess.DEVNULL, capture_output=True, pass_fds=(report.descriptor,),
                timeout=PROBE_S, check=True,
            )  # fmt: skip
            report.check()
        except subprocess.CalledProcessError as error:
            report.check()
            raise CannotConfine("program", errno.EACCES, "/bin/sh") from error
        except subprocess.TimeoutExpired as error:
            raise CannotConfine("program", errno.ETIMEDOUT, "/bin/sh") from error
        except OSError as error:
            raise CannotConfine("program", error.errno or errno.EIO, str(PROGRAM)) from error
