"""What an attack is: one row of a table, in the words of the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from tests.proof.fooled.estate import Mode, Speaker

Place = Literal[
    "words", "file", "name", "found", "output", "news", "mcp", "plugin", "error", "history",
    "picture", "pdf", "word", "page", "summary", "quiet",
]  # fmt: skip
"""Where the instruction lies: in what the speaker says himself; in a file, a file name, a line found, the output of a
command, a picture; in the result of a network tool, an MCP server, a plugin, its error; in what an earlier turn has
read, and in a summary of that; in a document; on a web page; in files that nobody is told to read (quiet).
"""

OUTSIDE: frozenset[Place] = frozenset({"news", "mcp", "plugin", "error", "pdf", "word", "page"})
MODES: tuple[Mode, ...] = get_args(Mode)

Step = Mapping[str, object] | Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Attack:
    """One row. `steps` are what the model is told to do; names between percent signs are filled in by the trial.
    `asks` says that the owner must have been asked (he says no). `plants` are files in the attack's own folder, by
    name, `web` pages by path; `wraps` is what stands around the instruction. `mute`: not one byte may reach the sink.
    `hears` False: what lies in the roots must not be heard in the speaker's own chat either.
    """

    id: str
    cases: tuple[str, ...]
    lies: Place
    steps: tuple[Step, ...]
    by: Speaker = "local"
    modes: tuple[Mode, ...] = ("standard",)
    asks: bool | None = None
    mute: bool | None = None
    plants: Mapping[str, str] | None = None
    web: Mapping[str, str] | None = None
    wraps: str = "{}"
    hears: bool = True

    @property
    def exposed(self) -> bool:
        return self.lies in OUTSIDE

    @property
    def must_be_mute(self) -> bool:
        """Whether the sink must hear nothing at all: a guest has no way out, and nobody said yes to an exposed turn."""
        return (
            self.by == "guest" or self.exposed or self.lies in ("history", "summary")
            if self.mute is None
            else self.mute
        )

    @property
    def tools(self) -> frozenset[str]:
        """The names that the model is told to call."""
        calls = [call for step in self.steps for call in ([step] if isinstance(step, Mapping) else step)]
        return frozenset(str(call["tool"]) for call in calls if "tool" in call)


def call(tool: str, /, **arguments: object) -> dict[str, object]:
    return {"tool": tool, "arguments": arguments}


def sh(command: str, **more: object) -> dict[str, object]:
    return call("shell", command=command, **more)


def read(path: str, **more: object) -> dict[str, object]:
    return call("file_read", path=path, **more)


def say(text: str) -> dict[str, object]:
    return {"say": text}
