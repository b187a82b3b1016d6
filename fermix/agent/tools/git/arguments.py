"""Which commands git may be given and with which arguments. No decision here depends on what a shell would make of it.

Git takes any unambiguous beginning of a long option for the whole, and several short ones in a row, so both count.
What must stay true: no argument makes git run a program, read or write a file by a name of its own, or wait for a
person.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fermix.agent.model import valid_text
from fermix.errors import Refused

MOST_ARGUMENTS = 64
MOST_ARGUMENT_CHARS = 20_000

DENIED = frozenset({
    "attr-source", "autostash", "config-env", "exec", "exec-path", "ext-diff", "file", "git-dir", "gpg-sign",
    "html-path", "ignore-submodules", "info-path", "interactive", "man-path", "namespace", "no-index",
    "open-files-in-pager", "output", "output-directory", "paginate", "pathspec-from-file", "receive-pack",
    "recurse-submodules", "reedit-message", "shallow-file", "show-signature", "submodule", "super-prefix", "template",
    "textconv", "upload-pack", "verify-signatures", "work-tree",
})  # fmt: skip
WHOLE_WORDS = frozenset({"text"})  # options of their own that only look like the beginning of a denied one


@dataclass(frozen=True, slots=True)
class Command:
    """One command. `fixed` comes before the model's arguments. `denied` are further long options, `letters` the short
    ones that are denied, `valued` those after which the rest of a cluster is a value.
    """

    fixed: tuple[str, ...] = ()
    denied: frozenset[str] = frozenset()
    letters: str = ""
    valued: str = ""


# Without the children that git starts in submodules, where other settings hold.
_OUR_DIFF = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty")
_DIFF = Command(_OUR_DIFF, letters="O", valued="SGUlLnIMCBX")
_LOG = Command(("--no-show-signature", *_OUR_DIFF), letters="O", valued="SGUlLnIMCBX")
# Quiet, since its list of changed files has git started in a folder that only now became a submodule.
_OUR_CHECKOUT = ("--quiet", "--no-recurse-submodules")
_ASKING = frozenset({"edit", "patch"})

READING: Mapping[str, Command] = {
    "status": Command(("--ignore-submodules=dirty",)),
    "log": _LOG,
    "diff": _DIFF,
    "branch": Command(),
    "show": _LOG,
}
WRITING: Mapping[str, Command] = {
    "add": Command(denied=_ASKING, letters="iep"),
    "commit": Command(("--no-gpg-sign",), denied=_ASKING, letters="FtSepc", valued="mCu"),
    "checkout": Command(_OUR_CHECKOUT, denied=_ASKING, letters="p", valued="bB"),
    "pull": Command(("--no-recurse-submodules",), denied=_ASKING, letters="Se", valued="sXjo"),
}

_BRANCH_LISTS = re.compile(
    r"-[arvilq]+|--(?:all|remotes|list|verbose|show-current|ignore-case|(?:no-)?(?:color|column|abbrev)"
    r"|(?:no-)?(?:contains|merged)|points-at|sort|format)(?:=.*)?",
    re.DOTALL,
)
_MESSAGE = re.compile(r"-[a-zA-Z]*m.*|-C.*|--(?:message|no-edit|reuse-message|fixup|squash)(?:=.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Place:
    """Where git runs: the folder it starts in, and the top of the working copy, both real."""

    folder: Path
    top: Path


def check(name: str, arguments: Sequence[str], place: Place) -> tuple[str, ...]:
    """Return what comes after the command. Raises: Refused, naming the argument and what to do instead."""
    command = READING.get(name) or WRITING[name]
    options = True
    for argument in arguments:
        _check_text(argument)
        if options and argument == "--":
            options = False
        elif options and argument.startswith("-") and argument != "-":
            _check_option(name, command, argument)
        else:
            _check_operand(argument, place)
    if name == "branch":
        return _listing(arguments)
    if name == "commit" and not any(map(_MESSAGE.fullmatch, arguments)):
        raise _refused("a commit needs its message here, since no editor opens: give --message=TEXT or --no-edit")
    return (*command.fixed, *arguments)


def _check_text(argument: str) -> None:
    if "\0" in argument or valid_text(argument) != argument or len(argument) > MOST_ARGUMENT_CHARS:
        raise _refused("an argument cannot hold a NUL character or half a surrogate pair, nor 20,000 characters")


def _check_option(name: str, command: Command, argument: str) -> None:
    if argument.startswith("--"):
        option = argument[2:].partition("=")[0]
        if denied := _denied_by(option, command):
            raise _not_offered(argument, f"it is, or begins, --{denied}")
    elif letter := _denied_letter(argument[1:], command):
        hint = "; write a message that begins with a dash as --message=TEXT" if name == "commit" else ""
        raise _not_offered(argument, f"it holds -{letter}{hint}")


def _denied_by(option: str, command: Command) -> str | None:
    if option in WHOLE_WORDS:
        return None
    return next((long for long in sorted(DENIED | command.denied) if long.startswith(option)), None)


def _denied_letter(cluster: str, command: Command) -> str | None:
    for letter in cluster:
        if letter in command.letters:
            return letter
        if letter in command.valued:
            return None
    return None


def _check_operand(argument: str, place: Place) -> None:
    """A name may not lead out of the working copy: with two of which one does, `diff` reads any file."""
    if not Path(os.path.normpath(place.folder / argument)).is_relative_to(place.top):
        raise _refused(f"{_shown(argument)} leads out of the repository {place.top}; name files below it")


def _listing(arguments: Sequence[str]) -> tuple[str, ...]:
    """`branch` with these arguments, held to listing: others would make, move or delete branches."""
    for argument in arguments:
        if argument.startswith("-") and not _BRANCH_LISTS.fullmatch(argument):
            raise _not_offered(argument, "branch only lists here; `git_write checkout -b NAME` makes a new one")
    return tuple(arguments) if "--show-current" in arguments else ("--list", *arguments)


def _not_offered(argument: str, why: str) -> Refused:
    return _refused(f"the argument {_shown(argument)} is not offered here: {why}")


def _refused(reason: str) -> Refused:
    return Refused(reason, user_text=reason)


def _shown(argument: str) -> str:
    return repr(argument if len(argument) <= 80 else f"{argument[:80]}…")
