"""Run git on one repository behind the walls of a turn, and learn what has to be known before it works there.

Called by `tool.py`. Every run has fixed options and an environment of its own; nothing of ours and no setting of the
owner's reaches it, but for who commits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fermix.agent.sandbox.sandbox import Confined
from fermix.agent.tools.git.repository import Repository
from fermix.agent.tools.git.settings import NOBODY, PREFIX, risky
from fermix.errors import Refused
from fermix.native.child import Ending, Finished, Limits, run_child

LOOKING = Limits(timeout_s=10.0, output_bytes=16_777_216)
SHOWN_SETTINGS = 5
KEPT_VARIABLES = ("HOME", "USER", "TMPDIR")
SSH = "ssh -F none -oBatchMode=yes -oStrictHostKeyChecking=yes -oProxyCommand=none -oPermitLocalCommand=no"
OF_GIT = {
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": NOBODY,
    "SSH_ASKPASS": NOBODY,
    "SSH_ASKPASS_REQUIRE": "never",
    "GIT_EDITOR": NOBODY,
    "GIT_SEQUENCE_EDITOR": NOBODY,
    "GIT_MERGE_AUTOEDIT": "no",
    "GIT_PAGER": "cat",
    "GIT_SSH_COMMAND": SSH,
}
NO_OWNER = {"GIT_CONFIG_GLOBAL": os.devnull}  # settings of the owner's own may name programs as well
READING_ONLY = {"GIT_ALLOW_PROTOCOL": "none", "GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1"}
MAY_PULL = {"GIT_ALLOW_PROTOCOL": "https:ssh:git"}
WHO = r"^user\.(name|email)$"
PULLED_FROM = r"^(remote\..*\.url|branch\..*\.remote)$"
LIST_SETTINGS = ("config", "--no-includes", "--show-scope", "--name-only", "-z", "--list")


@dataclass(frozen=True, slots=True)
class Walled:
    """Git behind the walls of a turn. `variables` say what it may reach, and where it finds programs."""

    program: Path
    confined: Confined
    variables: Mapping[str, str]

    async def run(
        self, repository: Repository, arguments: Sequence[str], limits: Limits, *, owner: bool = False
    ) -> Finished:
        """Run it; `owner` lets it read the owner's own settings. Raises: OSError, CannotConfine."""
        given = self.confined.environment
        kept = {name: given[name] for name in KEPT_VARIABLES if name in given}
        own = {**OF_GIT, **self.variables, **repository.variables(), **({} if owner else NO_OWNER)}
        argv = [str(self.program), *PREFIX, *arguments]
        return await run_child(
            argv, cwd=repository.folder, env={**kept, **own}, limits=limits, behind=self.confined.behind
        )


def _why(ending: Ending, text: str) -> str:
    match ending:
        case "exited":
            return text.strip()[:300]
        case "timeout":
            return "git waits for one of their files, which may be none"
        case "output_cap":
            return "they are too long"


async def check_settings(walled: Walled, repository: Repository) -> None:
    """Raises: Refused when git could run a program, or read elsewhere, because of a setting."""
    finished = await walled.run(repository, LIST_SETTINGS, LOOKING)
    text = finished.output.decode("utf-8", "replace")
    if finished.exit_code or finished.ending != "exited":
        raise _refused(f"the settings of {repository.top} cannot be read: {_why(finished.ending, text)}")
    words = text.split("\0")
    if found := risky(key for scope, key in zip(words[::2], words[1::2], strict=False) if scope != "command"):
        named = ", ".join(found[:SHOWN_SETTINGS]) + (", …" if len(found) > SHOWN_SETTINGS else "")
        raise _refused(
            f"the settings of {repository.top} hold {named}: git could run a program because of it or read elsewhere, "
            "so nothing was done. Tell the owner, who can look at it with `git config --local --list` and remove it "
            "with `git config --local --unset NAME`"
        )


async def remotes(walled: Walled, repository: Repository) -> list[str]:
    """Return where a pull may go, e.g. "remote.origin.url https://example.org/x.git"; none when it cannot be told.

    A branch may name an address in place of a remote; those that name a remote of the list are left out.
    """
    finished = await walled.run(repository, ("config", "-z", "--no-includes", "--get-regexp", PULLED_FROM), LOOKING)
    entries = [(key, value) for key, value in _entries(finished) if finished.exit_code == 0]
    names = {key.removeprefix("remote.").removesuffix(".url") for key, _ in entries if key.startswith("remote.")}
    known = {".", *names}  # "." is the repository itself
    return [f"{key} {value}" for key, value in entries if key.startswith("remote.") or value not in known]


async def submodules(walled: Walled, repository: Repository) -> list[Path]:
    """Return the folders of all submodules, there or not. Raises: Refused when they cannot be listed."""
    top = replace(repository, folder=repository.top)
    finished = await walled.run(top, ("ls-files", "--stage", "-z"), LOOKING)
    if finished.exit_code or finished.ending != "exited":
        raise _refused(f"the files of {repository.top} cannot be listed, so its submodules are unknown")
    entries = (entry.partition(b"\t") for entry in finished.output.split(b"\0") if entry.startswith(b"160000 "))
    return [repository.top / os.fsdecode(path) for _, _, path in entries]


async def who(walled: Walled, repository: Repository) -> tuple[str, ...]:
    """Return the options that say who commits, as the repository or else the owner's own settings have it."""
    finished = await walled.run(repository, ("config", "-z", "--includes", "--get-regexp", WHO), LOOKING, owner=True)
    if finished.exit_code or finished.ending != "exited":
        return ()
    return tuple(part for key, value in dict(_entries(finished)).items() for part in ("-c", f"{key}={value}"))


def _entries(finished: Finished) -> list[tuple[str, str]]:
    """Return settings and their values, as `config -z` lists them."""
    parts = (entry.partition("\n") for entry in finished.output.decode("utf-8", "replace").split("\0") if entry)
    return [(key, value) for key, _, value in parts]


def _refused(reason: str) -> Refused:
    return Refused(reason, user_text=reason)
