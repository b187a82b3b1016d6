"""The walls of a command, drawn from the same policy that the file tools obey. Used by the facade `sandbox.py`.

A command sees the system's programs, the toolchains on PATH, its turn's folders and a temporary folder of its own;
nothing else of the disk exists for it. Protected and blocked places stay closed even inside an open folder.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fermix.agent.sandbox.protected import FILES
from fermix.agent.sandbox.roots import real
from fermix.agent.sandbox.scratch import remove_tree
from fermix.native.confine import Behind, Kernel, Walls, probe

log = logging.getLogger(__name__)

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix/store")
FOR_GIT = (".gitconfig", ".config/git")  # without them git refuses to work
IN_LOCAL = ("bin", "lib", "share/uv", "share/pipx", "share/mise")  # of ~/.local, which also holds other things
SECRETS_OF_TOOLS = (".cargo/credentials", ".cargo/credentials.toml", ".config/git/credentials")
SECRETS_OF_SYSTEM = ("shadow*", "ssh/ssh_host_*_key", "ssl/private")  # of /etc; root reads them
ETC = Path("/etc")
OF_OTHERS = stat.S_IRWXG | stat.S_IRWXO
RESOLVER = Path("/etc/resolv.conf")  # often a link to a place outside of /etc


@dataclass(frozen=True, slots=True)
class Machine:
    """What commands may see on this machine, whatever the turn."""

    read: tuple[Path, ...]
    links: Mapping[Path, str]
    hide: tuple[Path, ...]

    @classmethod
    def of(cls, user_home: Path, environ: Mapping[str, str]) -> Machine:
        """Look once. Blocking, shortly."""
        places = [Path(text) for text in SYSTEM]
        links = {place: str(place.readlink()) for place in places if place.is_symlink()}
        folders = [place for place in places if place.is_dir() and not place.is_symlink()]
        tools = toolchains(environ.get("PATH", ""), user_home)
        extra = [*tools, *(user_home / name for name in FOR_GIT)]
        outside = [path for path in map(real, extra) if path.exists() and not _lies_in(path, folders)]
        resolver = real(RESOLVER)
        names = [resolver] if resolver.exists() and not _lies_in(resolver, folders) else []
        hide = (
            *(real(user_home / name) for name in SECRETS_OF_TOOLS),
            *(path for pattern in SECRETS_OF_SYSTEM for path in ETC.glob(pattern) if os.access(path, os.R_OK)),
            *(part for folder in tools for part in private_parts(folder)),
        )
        return cls((*folders, *outside, *names), links, hide)


def toolchains(search_path: str, user_home: Path) -> list[Path]:
    """Return the folders that the programs on PATH need: of `~/.cargo/bin` it is `~/.cargo`, never the home itself."""
    found: list[Path] = []
    homes = (user_home, *user_home.parents)
    for folder in (real(path) for path in map(Path, search_path.split(os.pathsep)) if path.is_absolute()):
        whole = folder.parent if folder.name in ("bin", "sbin", "shims") else folder
        if whole == user_home / ".local":
            found += [whole / name for name in IN_LOCAL]
        elif (needed := folder if whole in homes else whole) not in homes:
            found.append(needed)
    return list(dict.fromkeys(found))


def private_parts(toolchain: Path) -> list[Path]:
    """Return what only its owner may read at the top of a toolchain, and its sockets: no program needs that to run.

    Many keep the keys of their service there. Where the owner keeps everything to himself it says nothing: none.
    """
    if _lies_in(toolchain, map(Path, SYSTEM)) or not os.access(toolchain, os.R_OK) or _is_private(toolchain / "bin"):
        return []
    return [part for part in toolchain.iterdir() if part.is_socket() or _is_private(part)] if toolchain.is_dir() else []


def _is_there(path: Path) -> bool:
    """A granted folder may be on a disk that is unplugged."""
    with suppress(OSError):
        return path.exists()
    return False


def _is_private(path: Path) -> bool:
    with suppress(FileNotFoundError):
        state = path.lstat()
        return not stat.S_ISLNK(state.st_mode) and not state.st_mode & OF_OTHERS
    return False


class Confinement:
    """Builds the walls of commands. What the kernel can hold is tried at the first command. Thread-safe."""

    def __init__(self, user_home: Path, scratch: Path, environ: Mapping[str, str]) -> None:
        self._user_home = user_home
        self._scratch = scratch
        self._environ = environ
        self._looking = threading.Lock()
        self._made: set[str] = set()
        self._found: tuple[Machine, Kernel] | None = None

    def kernel(self) -> Kernel:
        """Say what this system can hold. Blocking."""
        return self._look()[1]

    def behind(
        self, turn_id: str, write: Iterable[Path], hide: Iterable[Path], *, network: bool, look_at: Iterable[Path] = ()
    ) -> Behind | None:
        """Return the walls of a command; None where nothing can be held. Blocking.

        `write` are the turn's open folders, `look_at` further ones that it cannot change, `hide` the closed places,
        all real paths.
        """
        machine, kernel = self._look()
        if kernel.form is None or (not network and not kernel.offline):
            return None
        scratch = self._scratch / turn_id
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._made.add(turn_id)
        folders, closed = tuple(filter(_is_there, write)), tuple(hide)
        _make_closed(closed, folders)
        shown = (*machine.read, *(path for path in look_at if path.is_dir()))
        read = tuple(path for path in shown if not _lies_in(path, folders))
        walls = Walls(
            read, folders, real(scratch), tuple(dict.fromkeys((*machine.hide, *closed))), machine.links, network
        )
        return Behind(walls, kernel.form)

    def forget(self, turn_id: str) -> Callable[[], None] | None:
        """Return what removes a turn's temporary folder, which blocks; None when it has none."""
        if turn_id not in self._made:
            return None
        self._made.discard(turn_id)
        return partial(remove_tree, self._scratch / turn_id)

    def _look(self) -> tuple[Machine, Kernel]:
        with self._looking:
            if self._found is None:
                machine = Machine.of(self._user_home, self._environ)
                remove_tree(self._scratch)  # what a killed daemon left
                self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
                kernel = probe(Walls(machine.read, (), real(self._scratch), machine.hide, machine.links))
                log.info("commands are confined by: %s %s", kernel.form or "nothing", kernel.problem)
                self._found = machine, kernel
            return self._found


def told(kernel: Kernel) -> str:
    """Say in words how far commands are held, and which part is not."""
    if kernel.form is None:
        return f"not confined: {kernel.problem}"
    network = () if kernel.offline else ("the network cannot be closed to them",)
    missing = "".join(f"; {what}" for what in (*kernel.missing, *network))
    if kernel.form == "view":
        alone = "" if kernel.landlock else "; this kernel has no Landlock to say it twice"
        return f"confined: the kernel shows them nothing but their folders{alone}{missing}"
    if kernel.form == "rules":
        return f"confined by rules of the kernel alone, not by a view of their own ({kernel.problem}){missing}"
    return f"confined by rules of the system{missing}"


def _make_closed(closed: Iterable[Path], folders: Collection[Path]) -> None:
    """Make the closed folders that are missing from an open one: only what is there can be covered, and a command
    that makes `~/.ssh` itself could put keys into it.
    """
    for path in closed:
        if path.parent in folders and path.name not in FILES and not path.suffix and not os.path.lexists(path):
            with suppress(OSError):  # a place that is closed to us is closed to our commands
                path.mkdir(mode=0o700)


def _lies_in(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
