"""A model of paths below a root, and cases for it: trees of links, dots, loops and long names.

`run_case` builds one tree on the disk, reads or writes one path through the sandbox, and compares with what the model
says. `run_race` does the same while a thread swaps folders for links, where only one thing is certain: nothing
outside is read or changed. Used by Hypothesis in `test_paths.py`, and by seeded runs of any length.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fermix.agent.sandbox import Sandbox, SandboxSettings
from fermix.agent.sandbox.place import Changed
from fermix.errors import OutsideSandbox
from fermix.home import Home
from tests.fakes.turns import make_turn

Pick = Callable[[int], int]  # a number from 0 below n
Names = tuple[str, ...]

NAMES = ("a", "b", "c", "d.txt", ".hid", "caf\u00e9", "cafe\u0301", "n" * 255)
ODD = ("..", ".", "", "x" * 256, "new", "a\0b")
SECRET = b"outside"
MOST_HOPS = 40


@dataclass(frozen=True)
class Node:
    """Something in the tree: a folder when both are None."""

    place: Names
    content: bytes | None = None
    target: str | None = None


@dataclass(frozen=True)
class Case:
    """A tree below the root, the text of a path, and what to do there: write when `data` is given, else read."""

    nodes: tuple[Node, ...]
    text: str
    data: bytes | None


class World:
    """A workspace and a place outside of it; its tree is made anew for each case."""

    def __init__(self, top: Path) -> None:
        self.top = top.resolve()
        self.home = Home(self.top / "user/.fermix")
        self.home.prepare()
        self.root = self.home.workspace
        self.outside = self.top / "outside"
        self.outside.mkdir()
        self.sandbox = Sandbox(SandboxSettings(), self.home, self.top, self.top / "user", {})

    def build(self, nodes: tuple[Node, ...]) -> None:
        for folder in (self.root, self.outside):
            shutil.rmtree(folder)
            folder.mkdir()
        (self.outside / "a").write_bytes(SECRET)
        for node in nodes:
            path = self.root.joinpath(*node.place)
            if node.target is not None:
                path.symlink_to(node.target.replace("OUT", str(self.outside)).replace("ROOT", str(self.root)))
            elif node.content is not None:
                path.write_bytes(node.content)
            else:
                path.mkdir()

    def files(self) -> dict[str, bytes | str]:
        """Everything that lies below, links by their target."""
        found: dict[str, bytes | str] = {}
        for folder in (self.root, self.outside):
            for holder, folders, names in os.walk(folder):
                for name in (*folders, *names):
                    path = Path(holder, name)
                    if path.is_symlink():
                        found[str(path)] = str(path.readlink())
                    elif path.is_file():
                        found[str(path)] = path.read_bytes()
        return found

    def do(self, case: Case, *, make_folders: bool = True) -> bytes | None:
        """Read or write as a file tool does; None when that was refused."""
        turn = make_turn()
        try:
            if case.data is not None:
                self.sandbox.find_to_change(turn, case.text).write(case.data, make_folders=make_folders)
                return case.data
            descriptor = self.sandbox.find(turn, case.text).open_file()
        except (OutsideSandbox, Changed, OSError):
            return None
        try:
            return os.read(descriptor, 100)
        finally:
            os.close(descriptor)


class Model:
    """What a path means, worked out on the list of nodes alone."""

    def __init__(self, world: World, nodes: tuple[Node, ...]) -> None:
        self._root = world.root.parts[1:]
        self._outside = world.outside.parts[1:]
        self._targets = {"OUT": str(world.outside), "ROOT": str(world.root)}
        self._nodes = {(*self._root, *node.place): node for node in nodes}

    def meant(self, text: str) -> Names | None:
        """Return the parts of the real path; None for a loop and for no possible name."""
        if "\0" in text:
            return None
        here, waiting, hops = self._root, text.split("/")[::-1], 0
        if text.startswith("/"):
            here = ()
        while waiting:
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                here = here[:-1]
                continue
            node = self._nodes.get((*here, part))
            if node is None or node.target is None:
                here = (*here, part)
                continue
            hops += 1
            if hops > MOST_HOPS:
                return None
            target = node.target
            for word, path in self._targets.items():
                target = target.replace(word, path)
            here = () if target.startswith("/") else here
            waiting += target.split("/")[::-1]
        return here

    def expected(self, case: Case) -> bytes | None:
        """Return what is read or written; None for what must be refused."""
        meant = self.meant(case.text)
        if meant is None or len(meant) <= len(self._root) or meant[: len(self._root)] != self._root:
            return None
        if any(len(os.fsencode(part)) > 255 for part in meant):
            return None
        node = self._nodes.get(meant)
        if case.data is None or (node is not None and node.content is None):
            return node.content if node is not None else None
        above = (self._nodes.get(meant[:length]) for length in range(len(self._root) + 1, len(meant)))
        return None if any(node is not None and node.content is not None for node in above) else case.data


def make_case(pick: Pick) -> Case:
    """Make up a tree and a path; every choice is one call of `pick`."""
    nodes: list[Node] = []
    taken: set[Names] = set()
    for number in range(pick(9)):
        folders = [(), *(node.place for node in nodes if node.content is None and node.target is None)]
        place = (*folders[pick(len(folders))], NAMES[pick(len(NAMES))])
        if place in taken:
            continue
        taken.add(place)
        kind = pick(4)
        content = str(number).encode() if kind == 0 else None
        nodes.append(Node(place, content, _text(pick) if kind > 1 else None))
    return Case(tuple(nodes), _text(pick), b"written" if pick(2) else None)


def _text(pick: Pick) -> str:
    words = (*NAMES, *ODD[:-1], "..", "..")
    parts = [words[pick(len(words))] for _ in range(1 + pick(5))]
    start = ("", "", "", "ROOT/", "OUT/")[pick(5)]
    return start + "/".join(parts) or "."


def run_case(world: World, case: Case) -> None:
    """Do one case and compare. Raises: AssertionError."""
    case = Case(case.nodes, case.text.replace("OUT", str(world.outside)).replace("ROOT", str(world.root)), case.data)
    world.build(case.nodes)
    before = world.files()
    model = Model(world, case.nodes)
    expected = model.expected(case)

    assert world.do(case) == expected, case
    if case.data is not None and expected is not None:
        meant = model.meant(case.text)
        assert meant is not None
        before["/" + "/".join(meant)] = case.data
    assert world.files() == before, case


def run_race(world: World, pick: Pick, *, tries: int = 20) -> None:
    """Read and write below a folder that is a link to the outside every other moment. Raises: AssertionError."""
    world.build((Node(("real",)), Node(("real", "a"), b"inside"), Node(("link",), target="OUT")))
    names = [world.root / name for name in ("place", "real", "link")]
    stop = threading.Event()

    def swap() -> None:
        place, *others = names
        while not stop.is_set():
            for other in others:
                other.rename(place)
                place.rename(other)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(tries):
            text = f"{('place', 'real', 'link')[pick(3)]}/{('a', 'new', 'new/deeper', '../link/a')[pick(4)]}"
            case = Case((), text, b"written" if pick(2) else None)
            assert world.do(case, make_folders=False) != SECRET  # a folder made there would end the swapping
    finally:
        stop.set()
        thread.join(5)
    assert [(path.name, path.read_bytes()) for path in world.outside.iterdir()] == [("a", SECRET)]


def run_seeds(top: Path, seed: int, cases: int) -> None:
    """Do many cases of one seed, a race after every hundredth. Raises: AssertionError naming the case."""
    world, chosen = World(top), random.Random(seed)
    for number in range(cases):
        run_case(world, make_case(chosen.randrange))
        if number % 100 == 0:
            run_race(world, chosen.randrange)
