"""Every place that no file tool may open, and every one that none may change, each by its own name, in the open mode.

The names are written down here once more: one that falls out of the lists of the product is missed by its own row.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fermix.agent.approvals import Approvals
from fermix.agent.model import ToolResult
from fermix.agent.sandbox import Policy, Sandbox, SandboxSettings, protected
from fermix.errors import ConfigError
from fermix.home import Home
from fermix.workers import Workers
from tests.agent.tools.conftest import Toolbox
from tests.fakes.clock import ManualClock
from tests.fakes.tools import tool_deps

FOLDERS = (
    ".ssh", ".gnupg", ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".config/keepassxc",
    ".aws", ".azure", ".config/gcloud", ".oci", ".kube", ".docker", ".config/doctl", ".terraform.d",
    ".config/rclone", ".config/gh", ".config/glab-cli", ".config/hub", ".config/op", ".config/sops", ".anthropic",
    ".claude", ".codex", ".gemini", ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium",
    ".config/BraveSoftware", ".config/microsoft-edge", ".config/vivaldi", ".config/opera", "snap/firefox",
    "snap/chromium", "Library/Keychains", "Library/Cookies", "Library/Safari",
    "Library/Application Support/Google/Chrome", "Library/Application Support/Chromium",
    "Library/Application Support/BraveSoftware", "Library/Application Support/Firefox",
)  # fmt: skip
FILES = (
    ".netrc", ".git-credentials", ".config/git/credentials", ".cargo/credentials", ".cargo/credentials.toml",
    ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".vault-token", ".claude.json", ".bash_history", ".zsh_history",
    ".psql_history", ".mysql_history",
)  # fmt: skip
SESSION = (
    ".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".bash_completion",
    ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".oh-my-zsh", ".cshrc", ".tcshrc", ".login", ".kshrc",
    ".mkshrc", ".config/fish", ".config/nushell", ".config/powershell", ".config/environment.d", ".xprofile",
    ".xinitrc", ".xsession", ".xsessionrc", ".pam_environment", ".config/autostart", ".config/plasma-workspace",
    ".config/systemd", ".local/share/systemd", ".local/share/applications", ".local/share/dbus-1", ".tmux.conf",
    ".config/tmux", ".gitconfig", ".config/git", ".exrc", ".vimrc", ".gvimrc", ".vim", ".config/vim",
    ".config/nvim", ".emacs", ".emacs.d", ".config/emacs", "Library/LaunchAgents",
)  # fmt: skip
OURS = (
    "config.toml", "config.toml.previous", "auth.json", "grants", "logs", "traces", "run", "daemon.sock",
    "daemon.lock", "bootstrap/main", "memory.db", "memory.db-wal", "memory.db-shm", "memory.db-journal",
)  # fmt: skip
SYSTEM = ("/etc", "/usr", "/proc", "/sys", "/System", "/Library")
SECRET = "canary of the owner"


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Toolbox]:
    """The tools where the whole home of the user is open."""
    home = Home(tmp_path / "user/.fermix")
    home.prepare()
    settings, workers, clock = SandboxSettings(mode="open"), Workers(), ManualClock()
    sandbox = Sandbox(settings, home, tmp_path, tmp_path / "user", {"PATH": "/usr/bin:/bin"})
    policy = Policy(sandbox, home, {"sandbox": SandboxSettings}, workers, clock)
    yield Toolbox(home, tool_deps(home, policy, Approvals(clock), workers))
    workers.close()


def put(toolbox: Toolbox, name: str) -> Path:
    path = toolbox.home.root.parent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SECRET, encoding="utf-8")
    return path


def is_refused(result: ToolResult, reason: str) -> bool:
    return not result.ok and reason in result.text and SECRET not in result.text


async def test_no_file_tool_opens_or_changes_what_holds_secrets(opened: Toolbox) -> None:
    """SBX-05, R-45: also where the whole home is open; each place for itself."""
    missed: list[str] = []
    for name in (*(f"{folder}/deep/x" for folder in FOLDERS), *FILES, *(f".fermix/{name}" for name in OURS[:3])):
        path = put(opened, name)
        read = await opened.call("file_read", path=str(path))
        written = await opened.call("file_write", path=str(path), content="mine")
        kept = path.read_text(encoding="utf-8") == SECRET
        missed += [] if kept and is_refused(read, "protected") and is_refused(written, "protected") else [name]

    assert missed == []


async def test_no_file_tool_changes_what_the_next_session_reads(opened: Toolbox) -> None:
    """R-33: it may be looked at, so that the owner can ask about it."""
    missed: list[str] = []
    for name in SESSION:
        path = put(opened, name)
        read = await opened.call("file_read", path=str(path))
        written = await opened.call("file_write", path=str(path), content="mine")
        kept = path.read_text(encoding="utf-8") == SECRET
        missed += [] if kept and SECRET in read.text and is_refused(written, "a session of its owner") else [name]

    assert missed == []


async def test_no_file_tool_opens_the_system(opened: Toolbox) -> None:
    results = [await opened.call("file_read", path=f"{folder}/x") for folder in SYSTEM]

    assert [is_refused(result, "protected") for result in results] == [True] * len(SYSTEM)


@pytest.mark.parametrize("name", OURS)
def test_nothing_of_ours_that_decides_or_records_can_be_granted(opened: Toolbox, name: str) -> None:
    """R-44: not even by the owner's own configuration; a grant would show it to commands."""
    path = opened.home.root / name
    with pytest.raises(ConfigError, match="must not be granted"):
        Sandbox(SandboxSettings(allowed_roots=(str(path),)), opened.home, path, opened.home.root.parent, {})


def test_every_protected_name_has_its_row() -> None:
    assert {*protected.FOLDERS, *protected.FILES, *protected.SESSION_FILES} <= {*FOLDERS, *FILES, *SESSION}
    assert {*protected.SYSTEM} - {"/bin", "/sbin"} <= {*SYSTEM}  # these two are links into another one today
