"""git_read and git_write: run git by argument vector, on a repository that may be anybody's.

Every run has fixed options, an environment of its own and the walls of a shell command; reading has no network. What
must stay true: a repository's settings are read before git works in it, and those that could name a program stop it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fermix.agent.capability import Capability, Kind, ToolContext
from fermix.agent.model import JsonObject, JsonValue, ToolResult
from fermix.agent.risk import why_acting, why_connected
from fermix.agent.sandbox import Sandbox
from fermix.agent.sandbox.programs import NoProgram, find_program, lies_in
from fermix.agent.tools.git.arguments import MOST_ARGUMENTS, READING, WRITING, Place, check
from fermix.agent.tools.git.repository import Eyes, Repository, check_old_remotes, find_repository
from fermix.agent.tools.git.walled import MAY_PULL, READING_ONLY, Walled, check_settings, remotes, submodules, who
from fermix.agent.turn import Turn
from fermix.config.secrets import hide_at_cut
from fermix.errors import NeedsOperator, Refused
from fermix.native.child import Finished, Limits
from fermix.trust import PolicyClass
from fermix.workers import Workers

LIMITS = Limits(timeout_s=120.0)
MOST_SUBMODULES = 200
NOTICE = "Hooks, signing, filters and other programs that a repository names do not run."


def tools(sandbox: Sandbox, workers: Workers) -> tuple[Capability, ...]:
    """Build the two tools."""
    git = Git(sandbox, workers)
    return (
        Capability(
            name="git_read",
            description="Look into a git working copy: status, log, diff, show, or its list of branches.",
            parameters=_parameters(tuple(READING)),
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_ONLY,
            owner_only=True,
            run=git.read,
            category="git",
            when_to_use="to see what changed, when and by whom; the file of an old state is show REVISION:PATH",
            examples=(
                '{"command": "log", "args": ["-n", "10", "--oneline"]}',
                '{"command": "diff", "args": ["--stat"]}',
            ),
            failure_modes=("a repository whose settings could make git run a program is not worked in",),
        ),
        Capability(
            name="git_write",
            description=f"Change a git working copy: add, commit, checkout, pull. There is no push. {NOTICE}",
            parameters=_parameters(tuple(WRITING)),
            kind=Kind.BUILTIN,
            policy=PolicyClass.READ_WRITE,
            owner_only=True,
            run=git.write,
            category="git",
            when_to_use="to keep a state of files, to change or make a branch (checkout -b), to get what is new",
            examples=(
                '{"command": "add", "args": ["notes.md"]}',
                '{"command": "commit", "args": ["--message=Note the date"]}',
            ),
            failure_modes=("a remote that wants a password or a protected key cannot be pulled from",),
            asks=_why_asked,
            acts_in=git.acts_in,
        ),
    )


def _parameters(commands: Sequence[str]) -> JsonObject:
    return {
        "type": "object",
        "properties": {
            "command": {"type": "string", "enum": list(commands)},
            "repo": {"type": "string", "description": "folder of the working copy, default: the current one"},
            "args": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": MOST_ARGUMENTS,
                "description": "options and names as git takes them, one each; no shell reads them",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    }


def _why_asked(arguments: Mapping[str, JsonValue], context: ToolContext) -> str | None:
    """Pulling is the one command that reaches another machine. Where it goes need not stand in its arguments: a fooled
    turn can write it into the repository first. So a pull counts as a command with network.
    """
    if arguments.get("command") != "pull":
        return None
    return why_acting(context.exposure) or why_connected(context.exposure)


def _folder(arguments: Mapping[str, JsonValue]) -> str:
    return str(arguments.get("repo") or ".")


def _arguments(arguments: Mapping[str, JsonValue]) -> tuple[str, ...]:
    given = arguments.get("args")
    return tuple(str(one) for one in given) if isinstance(given, list) else ()


class Git:
    """Both tools."""

    def __init__(self, sandbox: Sandbox, workers: Workers) -> None:
        self._sandbox = sandbox
        self._workers = workers
        self._program: Path | None = None

    async def read(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        return await self._run(arguments, context.turn, READING_ONLY, network=False)

    async def write(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> ToolResult:
        pulls = arguments["command"] == "pull"
        result = await self._run(arguments, context.turn, MAY_PULL, network=pulls)
        return replace(result, outside=pulls)

    async def _run(
        self, arguments: Mapping[str, JsonValue], turn: Turn, variables: Mapping[str, str], *, network: bool
    ) -> ToolResult:
        name = str(arguments["command"])
        try:
            repository = await self._workers.run(find_repository, self._sandbox, turn, _folder(arguments))
            checked = check(name, _arguments(arguments), Place(repository.folder, repository.top))
            walled = await self._workers.run(self._walled, turn, variables, network)
            await check_settings(walled, repository)
            if name in WRITING:
                await self._check_submodules(walled, repository, turn)
            committer = await who(walled, repository) if name in ("commit", "pull") else ()
            finished = await walled.run(repository, (*committer, name, *checked), LIMITS)
        except OSError as error:
            return ToolResult(False, f"git cannot work there: {error.strerror} ({error.filename})")
        return _result(name, finished)

    async def acts_in(self, arguments: Mapping[str, JsonValue], context: ToolContext) -> str:
        """Say which working copy a call changes, and from where a pull could get what is new.

        Raises: OutsideSandbox, Refused, NeedsOperator, OSError.
        """
        turn = context.turn
        repository = await self._workers.run(find_repository, self._sandbox, turn, _folder(arguments))
        if arguments.get("command") != "pull":
            return str(repository.top)
        await self._workers.run(check_old_remotes, repository)
        walled = await self._workers.run(self._walled, turn, MAY_PULL, False)
        return "; ".join((str(repository.top), *await remotes(walled, repository)))

    def _walled(self, turn: Turn, variables: Mapping[str, str], network: bool) -> Walled:
        """Raises: NeedsOperator, Refused."""
        program, folders = self._found(turn), self._folders(turn)
        confined = self._sandbox.confined(turn, offline=not network)
        search = confined.environment.get("PATH", "").split(os.pathsep)
        kept = (folder for folder in search if Path(folder).is_absolute() and not lies_in(Path(folder), folders))
        return Walled(program, confined, {**variables, "PATH": os.pathsep.join(kept)})

    def _folders(self, turn: Turn) -> list[Path]:
        return [root.path for root in self._sandbox.roots_for(turn)]

    def _found(self, turn: Turn) -> Path:
        """Return the whole path of git, found once. Raises: NeedsOperator, Refused."""
        if self._program is None:
            try:
                self._program = find_program("git", self._sandbox.search_path)
            except NoProgram as error:
                raise NeedsOperator(f"git cannot be run: {error}", advice="install git, then ask again") from error
        if lies_in(self._program, self._folders(turn)):
            reason = f"{self._program} lies in a folder that commands may change, so it is not run by this tool"
            raise Refused(reason, user_text=reason)
        return self._program

    def _nested(self, turn: Turn, path: Path) -> Repository | None:
        """Return the repository that stands in this very folder, None when there is none."""
        return find_repository(self._sandbox, turn, str(path)) if os.path.lexists(path / ".git") else None

    async def _check_submodules(self, walled: Walled, top: Repository, turn: Turn) -> None:
        """Git starts itself in submodules to see whether they changed, and there their own settings count.

        Raises: Refused, OutsideSandbox, OSError.
        """
        eyes, waiting, seen = Eyes(self._sandbox, turn), [top], 0
        while waiting:
            repository = waiting.pop()
            has_any = await self._workers.run(repository.may_hold_submodules, eyes)
            for path in await submodules(walled, repository) if has_any else ():
                inner = await self._workers.run(self._nested, turn, path)
                if inner is None:
                    continue
                if (seen := seen + 1) > MOST_SUBMODULES:
                    raise _refused(f"this repository has more than {MOST_SUBMODULES} submodules; change it by shell")
                await check_settings(walled, inner)
                waiting.append(inner)


HINTS = (
    ("auto-detection is disabled", "the owner sets who commits: git config --global user.name and user.email"),
    ("terminal prompts disabled", "this remote wants a password, which this tool never gives; the owner pulls it"),
    ("Permission denied (publickey", "the owner's ssh keys are protected from this tool; the owner pulls it"),
    ("Host key verification failed", "the owner's list of known hosts is protected from this tool; the owner pulls it"),
    ("not allowed", "only https, ssh and git addresses can be pulled from"),
)


def _result(name: str, finished: Finished) -> ToolResult:
    text = finished.output.decode("utf-8", "replace")
    if finished.ending == "timeout":
        return ToolResult(False, f"{hide_at_cut(text)}\n[stopped after {LIMITS.timeout_s:g} s: name fewer files]")
    if finished.ending == "output_cap":
        note = "[this is only the beginning: narrow it with a path, -n NUMBER or --stat]"
        return ToolResult(name in READING, f"{hide_at_cut(text)}\n{note}")
    if finished.exit_code == 0:
        return ToolResult(True, text if text.strip() else "(nothing to show)" if name in READING else "done")
    hint = next((f"\n[{hint}]" for mark, hint in HINTS if mark in text), "")
    return ToolResult(False, f"{text}\n[git {name} failed with exit code {finished.exit_code}]{hint}")


def _refused(reason: str) -> Refused:
    return Refused(reason, user_text=reason)
