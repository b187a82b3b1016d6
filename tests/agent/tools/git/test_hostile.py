"""Repositories that try to run a program as soon as git works in them. Each trap is first shown to work by itself."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fermix.agent.tools.git import tool, walled
from fermix.agent.tools.git.settings import PREFIX
from fermix.native.child import Limits
from tests.agent.tools.conftest import Toolbox
from tests.fakes.repository import ENVIRONMENT, Repository, Trap

HOOKS = (
    "applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-checkout", "post-commit", "post-index-change",
    "post-merge", "post-rewrite", "pre-auto-gc", "pre-commit", "pre-merge-commit", "prepare-commit-msg", "pre-rebase",
    "reference-transaction",
)  # fmt: skip
NOWHERE = "127.0.0.1:9"  # nothing listens there
SIGNED = "[GNUPG:] SIG_CREATED "

Arrange = Callable[[Repository, Trap], None]


def setting(name: str, value: str = "") -> Arrange:
    return lambda repository, trap: _put(repository, name, value or str(trap.program))


def _put(repository: Repository, *pairs: str) -> None:
    for name, value in zip(pairs[::2], pairs[1::2], strict=True):
        repository.git("config", name, value)


def hooks(repository: Repository, trap: Trap) -> None:
    for name in HOOKS:
        (repository.top / ".git/hooks" / name).symlink_to(trap.program)


def hooks_elsewhere(repository: Repository, trap: Trap) -> None:
    for name in HOOKS:
        (trap.folder / name).symlink_to(trap.program)
    _put(repository, "core.hooksPath", str(trap.folder))


def attribute(driver: str, *settings: str) -> Arrange:
    def arrange(repository: Repository, trap: Trap) -> None:
        repository.write(".gitattributes", f"* {driver}\n")
        for name in settings:
            _put(repository, name, str(trap.program))
        repository.write("a.txt", "two\n")  # as long as before, so that git must look inside
        os.utime(repository.top / "a.txt", (1, 1))

    return arrange


def smudge(repository: Repository, trap: Trap) -> None:
    attribute("filter=x", "filter.x.smudge")(repository, trap)


def worktree_setting(repository: Repository, trap: Trap) -> None:
    attribute("filter=x")(repository, trap)
    repository.git("config", "extensions.worktreeConfig", "true")
    repository.git("config", "--worktree", "filter.x.clean", str(trap.program))


def included(repository: Repository, trap: Trap) -> None:
    attribute("filter=x")(repository, trap)
    repository.write("more", f'[filter "x"]\n\tclean = {trap.program}\n')
    _put(repository, "include.path", "../more")


def included_if(repository: Repository, trap: Trap) -> None:
    attribute("filter=x")(repository, trap)
    repository.write("more", f'[filter "x"]\n\tclean = {trap.program}\n')
    _put(repository, "includeIf.onbranch:main.path", "../more")


def remote(url: str, *settings: str) -> Arrange:
    def arrange(repository: Repository, trap: Trap) -> None:
        _put(repository, "remote.origin.url", url.replace("TRAP", str(trap.program)))
        _put(repository, "branch.main.remote", "origin", "branch.main.merge", "refs/heads/main")
        for name in settings:
            key, _, value = name.partition("=")
            _put(repository, key, value or str(trap.program))

    return arrange


def signing(repository: Repository, trap: Trap) -> None:
    _put(repository, "commit.gpgSign", "true", "gpg.program", str(trap.program))
    repository.write("b.txt", "two\n")
    repository.git("add", "b.txt")


def signed(repository: Repository, trap: Trap) -> None:
    """A commit with a signature, and a program that is asked whether it is good."""
    head = repository.git("cat-file", "commit", "HEAD").replace(
        "\n\nfirst", "\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n -----END PGP SIGNATURE-----\n\nfirst"
    )
    written = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=repository.top, env=ENVIRONMENT, input=head, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    repository.git("reset", "-q", "--hard", written)
    _put(repository, "gpg.program", str(trap.program), "log.showSignature", "true")


def trailer(repository: Repository, trap: Trap) -> None:
    _put(repository, "trailer.x.key", "X", "trailer.x.command", str(trap.program))


def staged(repository: Repository, trap: Trap) -> None:
    repository.write("b.txt", "two\n")
    repository.git("add", "b.txt")


def staged_with(arrange: Arrange) -> Arrange:
    def both(repository: Repository, trap: Trap) -> None:
        staged(repository, trap)
        arrange(repository, trap)

    return both


OVERRIDDEN: list[tuple[str, Arrange, str, list[str]]] = [
    ("fsmonitor on status", setting("core.fsmonitor"), "status", []),
    ("fsmonitor on diff", setting("core.fsmonitor"), "diff", []),
    ("fsmonitor on add", setting("core.fsmonitor"), "add", ["."]),
    ("hooks on commit", staged_with(hooks), "commit", ["-m", "x"]),
    ("hooks on checkout", hooks, "checkout", ["-B", "other"]),
    ("hooks on add", staged_with(hooks), "add", ["-A"]),
    ("hooks elsewhere", staged_with(hooks_elsewhere), "commit", ["-m", "x"]),
    ("editor", staged_with(setting("core.editor")), "commit", ["--fixup=amend:HEAD"]),
    ("signing", signing, "commit", ["--allow-empty", "-m", "x"]),
    ("signature in log", signed, "log", []),
    ("signature by format", signed, "log", ["--format=%G?"]),
    ("signature in show", signed, "show", []),
    ("ssh command", remote(f"ssh://{NOWHERE}/x", "core.sshCommand"), "pull", []),
    ("ssh by short address", remote("127.0.0.1:x", "core.sshCommand"), "pull", []),
    ("askpass", remote(f"ssh://{NOWHERE}/x", "core.askPass", "core.sshCommand"), "pull", []),
]


@pytest.mark.parametrize(
    ("arrange", "command", "args"), [row[1:] for row in OVERRIDDEN], ids=[r[0] for r in OVERRIDDEN]
)
async def test_a_program_that_a_repository_names_does_not_run(
    toolbox: Toolbox, repository: Repository, trap: Trap, arrange: Arrange, command: str, args: list[str]
) -> None:
    """SBX-11, R-37, R-38."""
    arrange(repository, trap)
    repository.write("first.txt", "new\n")

    await call(toolbox, command, args)

    assert not trap.sprung
    repository.write("second.txt", "new\n")
    repository.git(command, *args, fails=True)
    assert trap.sprung


REFUSED: list[tuple[str, Arrange, str, list[str], str]] = [
    ("clean on add", attribute("filter=x", "filter.x.clean"), "add", ["."], "filter.x.clean"),
    ("clean on status", attribute("filter=x", "filter.x.clean"), "status", [], "filter.x.clean"),
    ("clean on diff", attribute("filter=x", "filter.x.clean"), "diff", [], "filter.x.clean"),
    ("process", attribute("filter=x", "filter.x.process"), "add", ["."], "filter.x.process"),
    ("smudge", smudge, "checkout", ["--", "a.txt"], "filter.x.smudge"),
    ("textconv", attribute("diff=x", "diff.x.textconv"), "diff", [], "diff.x.textconv"),
    ("textconv on show", attribute("diff=x", "diff.x.textconv"), "show", [], "diff.x.textconv"),
    ("diff driver", attribute("diff=x", "diff.x.command"), "diff", [], "diff.x.command"),
    ("external diff", attribute("text", "diff.external"), "diff", [], "diff.external"),
    ("setting of one worktree", worktree_setting, "status", [], "filter.x.clean"),
    ("included", included, "status", [], "include.path"),
    ("included on a branch", included_if, "status", [], "includeif.onbranch:main.path"),
    ("transport", remote("ext::TRAP", "protocol.ext.allow=always"), "pull", [], "protocol.ext.allow"),
    ("proxy", remote(f"git://{NOWHERE}/x", "core.gitProxy"), "pull", [], "core.gitproxy"),
    ("upload-pack", remote(".", "remote.origin.uploadpack"), "pull", [], "remote.origin.uploadpack"),
    ("trailer", staged_with(trailer), "commit", ["-m", "x", "--trailer", "X=y"], "trailer.x.command"),
    ("alias of a builtin", setting("alias.status", "!TRAP"), "status", [], "alias.status"),
    ("template", setting("init.templateDir"), "status", [], "init.templatedir"),
    ("submodule update", setting("submodule.x.update", "!TRAP"), "status", [], "submodule.x.update"),
    ("foreign helper", setting("remote.origin.vcs", "x"), "pull", [], "remote.origin.vcs"),
    ("refs of lenders", setting("core.alternateRefsCommand"), "status", [], "core.alternaterefscommand"),
    ("merge driver", setting("merge.x.driver"), "pull", [], "merge.x.driver"),
    ("hook of newer gits", setting("hook.x.command"), "commit", ["-m", "x"], "hook.x.command"),
    ("proxy of http", setting("http.proxy", "http://127.0.0.1:9"), "pull", [], "http.proxy"),
    ("options of merge", setting("branch.main.mergeOptions", "--edit"), "pull", [], "branch.main.mergeoptions"),
]
WORK_HERE = [row[0] for row in REFUSED[:16] if row[0] != "textconv on show"]


@pytest.mark.parametrize("row", REFUSED, ids=[row[0] for row in REFUSED])
async def test_a_setting_that_may_name_a_program_stops_the_tool(
    toolbox: Toolbox, repository: Repository, trap: Trap, row: tuple[str, Arrange, str, list[str], str]
) -> None:
    """SBX-11, R-38: told by its name, and nothing has run."""
    title, arrange, command, args, name = row
    arrange(repository, trap)
    trap.reset()

    text = await call(toolbox, command, args)

    assert f"hold {name}" in text
    assert "git config --local --unset NAME" in text
    assert not trap.sprung
    repository.git(command, *args, fails=True)
    assert trap.sprung or title not in WORK_HERE


async def test_every_setting_is_told_not_only_the_first(toolbox: Toolbox, repository: Repository, trap: Trap) -> None:
    for number in range(7):
        _put(repository, f"filter.f{number}.clean", str(trap.program))

    text = await call(toolbox, "status", [])

    assert "filter.f0.clean, filter.f1.clean, filter.f2.clean, filter.f3.clean, filter.f4.clean, …" in text


async def test_settings_that_cannot_be_read_stop_the_tool(toolbox: Toolbox, repository: Repository) -> None:
    (repository.top / ".git/config").write_text("[core\n", encoding="utf-8")

    assert "cannot be read" in await call(toolbox, "status", [])


async def test_settings_that_git_waits_for_or_that_have_no_end_are_said_to_be_so(
    toolbox: Toolbox, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason was empty, or what git had begun to write."""
    config = repository.top / ".git/config"
    monkeypatch.setattr(walled, "LOOKING", Limits(timeout_s=5.0, output_bytes=1_000))
    config.write_text("[user]\n" + "name = a\n" * 1_000, encoding="utf-8")
    long = await call(toolbox, "status", [])
    config.unlink()
    os.mkfifo(config)
    monkeypatch.setattr(walled, "LOOKING", Limits(timeout_s=0.2))
    waiting = await call(toolbox, "status", [])

    assert "cannot be read: they are too long" in long
    assert "cannot be read: git waits for one of their files" in waiting


async def test_usual_settings_are_no_reason_to_refuse(toolbox: Toolbox, repository: Repository) -> None:
    """What git, its hosting services and editors write by themselves."""
    _put(
        repository, "core.hooksPath", ".husky", "core.sshCommand", "ssh -i key", "branch.main.vscode-merge-base", "x",
        "remote.origin.url", "https://example.org/x.git", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*",
        "remote.origin.gh-resolved", "base", "lfs.repositoryformatversion", "0", "pull.rebase", "true",
        "core.fsmonitor", "true", "credential.https://example.org.helper", "store", "oh-my-zsh.hide-status", "1",
    )  # fmt: skip

    assert (await toolbox.call("git_read", command="status", repo="project")).ok


def test_no_helper_for_passwords_is_asked(repository: Repository, trap: Trap) -> None:
    """The options that stand before every command, shown where git asks for a password."""
    _put(repository, "credential.helper", str(trap.program), "credential.https://x.helper", str(trap.program))
    ask, question = ["credential", "fill"], "protocol=https\nhost=x\n\n"

    def run(*options: str) -> None:
        subprocess.run(
            ["git", *options, *ask], cwd=repository.top, env={**ENVIRONMENT, "GIT_TERMINAL_PROMPT": "0"},
            input=question, capture_output=True, text=True, timeout=5, check=False,
        )  # fmt: skip

    run(*PREFIX)
    assert not trap.sprung
    run()
    assert trap.sprung


async def test_a_submodule_cannot_run_a_program_either(toolbox: Toolbox, repository: Repository, trap: Trap) -> None:
    """R-37: git starts itself in a submodule to see whether it changed, and there its settings count."""
    inner = Repository.make(repository.top / "inner")
    repository.git("add", "inner")
    repository.git("commit", "-q", "-m", "with a submodule")
    attribute("filter=x", "filter.x.clean")(inner, trap)
    trap.reset()

    told = [await call(toolbox, *row) for row in (("add", ["-u"]), ("commit", ["-m", "x"]), ("checkout", ["main"]))]
    read = [await call(toolbox, *row) for row in (("status", []), ("diff", []), ("diff", ["HEAD"]), ("log", ["-p"]))]

    assert all("inner hold filter.x.clean" in text for text in told)
    assert not any("hold" in text for text in read)
    assert not trap.sprung
    repository.git("status")
    assert trap.sprung


def nested(repository: Repository, trap: Trap) -> None:
    """A repository in a folder that is a submodule on the branch "other" only; its settings name a program."""
    inner = Repository.make(repository.top / "inner")
    repository.git("checkout", "-q", "-b", "other")
    repository.write(".gitmodules", '[submodule "inner"]\n\tpath = inner\n\turl = ./inner\n\tignore = none\n')
    repository.git("add", ".")
    repository.git("commit", "-q", "-m", "with a submodule")
    repository.git("checkout", "-q", "main")
    attribute("filter=x", "filter.x.clean")(inner, trap)
    trap.reset()


@pytest.mark.parametrize(
    ("command", "args"),
    [("checkout", ["other"]), ("checkout", ["-b", "third", "other"]), ("add", ["-A"]), ("add", ["inner"])],
)
async def test_a_repository_that_only_now_becomes_a_submodule_runs_nothing(
    toolbox: Toolbox, repository: Repository, trap: Trap, command: str, args: list[str]
) -> None:
    """R-37: what is checked before a command is not all that it meets."""
    nested(repository, trap)

    text = await call(toolbox, command, args)

    assert "hold" not in text
    assert not trap.sprung
    repository.git("checkout", "other", fails=True)
    repository.git("status")
    assert trap.sprung
    assert "inner hold filter.x.clean" in await call(toolbox, "checkout", ["main"])


async def test_a_pull_never_puts_changes_aside(toolbox: Toolbox, repository: Repository) -> None:
    """Bringing them back has git started in folders that the pull itself made submodules."""
    _put(repository, "rebase.autoStash", "true")
    repository.write("a.txt", "two\n")

    assert "is not offered here" in await call(toolbox, "pull", ["--rebase", "--autostash"])
    assert "hold" not in await call(toolbox, "status", [])
    assert {"rebase.autoStash=false", "merge.autoStash=false"} < set(PREFIX)


async def test_a_harmless_submodule_is_no_hindrance(toolbox: Toolbox, repository: Repository) -> None:
    Repository.make(repository.top / "inner")
    repository.git("add", "inner")

    assert (await toolbox.call("git_write", command="commit", args=["-m", "x"], repo="project")).ok


def link_git(repository: Repository, outside: Repository) -> None:
    _moved(repository, "")
    (repository.top / ".git").write_text(f"gitdir: {outside.top}/.git\n", encoding="utf-8")


def link_git_relative(repository: Repository, outside: Repository) -> None:
    _moved(repository, "")
    target = os.path.relpath(outside.top / ".git", repository.top)
    (repository.top / ".git").write_text(f"gitdir: {target}", encoding="utf-8")


def symlink_git(repository: Repository, outside: Repository) -> None:
    _moved(repository, "")
    (repository.top / ".git").symlink_to(outside.top / ".git")


def symlink_part(name: str) -> Callable[[Repository, Repository], None]:
    def arrange(repository: Repository, outside: Repository) -> None:
        _moved(repository, name)
        (repository.top / ".git" / name).symlink_to(outside.top / ".git" / name)

    return arrange


def common_folder(repository: Repository, outside: Repository) -> None:
    (repository.top / ".git/commondir").write_text(f"{outside.top}/.git\n", encoding="utf-8")


def alternates(repository: Repository, outside: Repository) -> None:
    path = repository.top / ".git/objects/info/alternates"
    path.write_text(f"# borrowed\n{outside.top}/.git/objects\n", encoding="utf-8")


def alternates_by_two(repository: Repository, outside: Repository) -> None:
    middle = Repository.make(repository.top.parent / "middle")
    alternates(middle, outside)
    alternates(repository, middle)


def alternates_quoted(repository: Repository, outside: Repository) -> None:
    path = repository.top / ".git/objects/info/alternates"
    path.write_text(f'"{outside.top}/.git/objects"\n', encoding="utf-8")


def _moved(repository: Repository, name: str) -> None:
    (repository.top / ".git" / name).rename(repository.top / "moved")


@pytest.mark.parametrize(
    "arrange",
    [
        link_git, link_git_relative, symlink_git, common_folder, alternates, alternates_by_two, alternates_quoted,
        *map(symlink_part, ("config", "HEAD", "index", "objects", "refs")),
    ],
)  # fmt: skip
async def test_a_repository_that_leads_outside_is_refused(
    toolbox: Toolbox, repository: Repository, tmp_path: Path, arrange: Callable[[Repository, Repository], None]
) -> None:
    """Git would read there what no tool of this turn may read."""
    outside = Repository.make(tmp_path / "outside")
    outside.write("secret.txt", "canary\n")
    outside.git("add", ".")
    outside.git("commit", "-q", "-m", "canary")
    arrange(repository, outside)

    for command in ("log", "status"):
        result = await toolbox.call("git_read", command=command, repo="project")
        assert result.denied
        assert "canary" not in result.text


def a_pipe(repository: Repository) -> None:
    _moved(repository, "")
    os.mkfifo(repository.top / ".git")


def a_text(text: str) -> Callable[[Repository], None]:
    def arrange(repository: Repository) -> None:
        _moved(repository, "")
        (repository.top / ".git").write_text(text, encoding="utf-8")

    return arrange


def many_lenders(repository: Repository) -> None:
    stores = [repository.top / f"store{number}" for number in range(40)]
    for store in stores:
        store.mkdir()
    path = repository.top / ".git/objects/info/alternates"
    path.write_text("".join(f"{store}\n" for store in stores), encoding="utf-8")


def lenders_in_a_ring(repository: Repository) -> None:
    objects = repository.top / ".git/objects"
    (objects / "info/alternates").write_text(f"{objects}\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("arrange", "sentence"),
    [
        (a_pipe, "is not what git writes there"),
        (a_text("anything"), "is not what git writes there"),
        (a_text("gitdir: ."), "is not a git folder: it has no HEAD"),
        (a_text("gitdir: " + "x" * 70_000), "is larger than 65536 bytes"),
        (many_lenders, "borrows objects from more than 32 other places"),
        (lenders_in_a_ring, ""),
    ],
)
async def test_an_odd_git_folder_holds_nothing_up(
    toolbox: Toolbox, repository: Repository, arrange: Callable[[Repository], None], sentence: str
) -> None:
    arrange(repository)

    result = await toolbox.call("git_read", command="log", repo="project")

    assert result.ok != bool(sentence)
    assert sentence in result.text


async def test_what_submodules_there_are_must_be_known(
    toolbox: Toolbox, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    Repository.make(repository.top / "inner")
    repository.git("add", "inner")
    with monkeypatch.context() as patch:
        patch.setattr(tool, "MOST_SUBMODULES", 0)
        assert "more than 0 submodules; change it by shell" in await call(toolbox, "add", ["."])
    (repository.top / "inner").rename(toolbox.workspace / "gone")
    assert "hold" not in await call(toolbox, "add", ["a.txt"])
    (repository.top / ".git/index").write_bytes(b"DIRC garbage \0\0\xe0\0")
    assert "so its submodules are unknown" in await call(toolbox, "add", ["."])


async def test_a_work_tree_outside_counts_for_nothing(toolbox: Toolbox, repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/canary.txt").touch()
    _put(repository, "core.worktree", str(tmp_path / "elsewhere"))

    result = await toolbox.call("git_read", command="status", repo="project")

    assert (result.ok, "canary" in result.text) == (True, False)


async def test_a_repository_around_the_open_folders_is_not_used(toolbox: Toolbox, tmp_path: Path) -> None:
    """The top of the working copy must be open, not only the folder that was asked about."""
    Repository.make(tmp_path / "outer").git("init", "-q", str(toolbox.workspace.parent))

    result = await toolbox.call("git_read", command="status")

    assert result.denied
    assert "protected" in result.text


async def call(toolbox: Toolbox, command: str, args: list[str]) -> str:
    tool = "git_write" if command in ("add", "commit", "checkout", "pull") else "git_read"
    result = await toolbox.call(tool, command=command, args=list(args), repo="project")
    return result.text
