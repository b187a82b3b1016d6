"""The words on the daemon's socket about the sandbox: what it is, what a change would do, doing it.

A change is stated in the owner's words, as `fermix grant …` takes them; `sandbox.propose` answers with the whole
difference and a seal over it, and `sandbox.apply` does exactly that or nothing. Both, and a value, are refused to a
program that no person sits in front of. Without a daemon the verbs answer by the same shapes.
"""

from __future__ import annotations

from typing import NotRequired  # pydantic reads this only from here before Python 3.12

from typing_extensions import TypedDict


class RootRow(TypedDict):
    """A folder that is open to every turn. `source`: "workspace", "launch", "grant" or "home"."""

    path: str
    source: str


class VariableRow(TypedDict):
    """A variable that commands may get besides those of every command; never its value."""

    name: str
    state: str


class CommandRow(TypedDict):
    """A program that is a tool of its own; `program` None: it cannot be run, `problem` says why."""

    name: str
    program: str | None
    pass_env: list[str]
    problem: str


class SandboxStatus(TypedDict):
    """`sandbox.status`. `walls` says in words what holds commands on this system."""

    mode: str
    workspace: str
    roots: list[RootRow]
    blocked: list[str]
    walls: str
    network: bool
    env_mode: str
    variables: list[VariableRow]
    denied: list[str]
    profile: str
    presets: list[str]
    commands: list[CommandRow]


class ExplainPath(TypedDict):
    """`sandbox.explain`: `path` is absolute or begins with ~/; `cwd` is the folder that the owner speaks from."""

    path: str
    cwd: NotRequired[str | None]


class Explained(TypedDict):
    """Whether tools may touch a path, and why; `path` is where it leads."""

    path: str
    open: bool
    why: str


class GetVariable(TypedDict):
    """`sandbox.variable`: look one variable up as a command would; with `reveal` its value is in the answer."""

    name: str
    reveal: bool


class Variable(TypedDict):
    """`problem` says why it has no value, "" when it has one of `chars` characters."""

    name: str
    problem: str
    chars: int
    value: str | None


class ProposeChange(TypedDict):
    """`sandbox.propose`."""

    words: list[str]


class Proposed(TypedDict):
    """`widens`: something is opened, so the owner must agree to `text`, which shows all of it."""

    seal: str
    widens: bool
    text: str


class ApplyChange(TypedDict):
    """`sandbox.apply`."""

    words: list[str]
    seal: str


class Applied(TypedDict):
    """What was changed."""

    text: str
