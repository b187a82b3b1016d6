"""The lists: what no tool may touch in any mode, and what none may change. Data, read by `roots.py`.

Nobody can list every secret of a machine. The lists only matter where a whole home is open or a folder that was
granted holds one of them; everywhere else such a place is outside of the roots anyway.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from pathlib import Path

from fermix.home import Home

FOLDERS = (
    ".ssh", ".gnupg", ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".config/keepassxc",
    ".aws", ".azure", ".config/gcloud", ".oci", ".kube", ".docker", ".config/doctl", ".terraform.d", ".config/rclone",
    ".config/gh", ".config/glab-cli", ".config/hub", ".config/op", ".config/sops",
    ".anthropic", ".claude", ".codex", ".gemini",
    ".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
    ".config/microsoft-edge", ".config/vivaldi", ".config/opera", "snap/firefox", "snap/chromium",
    "Library/Keychains", "Library/Cookies", "Library/Safari", "Library/Application Support/Google/Chrome",
    "Library/Application Support/Chromium", "Library/Application Support/BraveSoftware",
    "Library/Application Support/Firefox",
)  # fmt: skip
"""Of the user's home: keys, credentials of services and agents, profiles of browsers."""

FILES = (
    ".netrc", ".git-credentials", ".config/git/credentials", ".cargo/credentials", ".cargo/credentials.toml",
    ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".vault-token", ".claude.json",
    ".bash_history", ".zsh_history", ".psql_history", ".mysql_history",
)  # fmt: skip
"""Of the user's home: passwords and tokens, and what was typed, which often holds some."""

SESSION_FILES = (
    ".profile", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
    ".bash_completion", ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".oh-my-zsh", ".cshrc", ".tcshrc",
    ".login", ".kshrc", ".mkshrc", ".config/fish", ".config/nushell", ".config/powershell", ".config/environment.d",
    ".xprofile", ".xinitrc", ".xsession", ".xsessionrc", ".pam_environment", ".config/autostart",
    ".config/plasma-workspace", ".config/systemd", ".local/share/systemd", ".local/share/applications",
    ".local/share/dbus-1", ".tmux.conf", ".config/tmux", ".gitconfig", ".config/git", ".exrc", ".vimrc", ".gvimrc",
    ".vim", ".config/vim", ".config/nvim", ".emacs", ".emacs.d", ".config/emacs", "Library/LaunchAgents",
)  # fmt: skip
"""Of the user's home: what is run the next time somebody logs in, opens a shell or an editor, or calls git."""

SYSTEM = ("/etc", "/usr", "/bin", "/sbin", "/proc", "/sys", "/System", "/Library")
DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal")


def in_user_home(user_home: Path) -> Iterable[Path]:
    """Return what is closed in the user's home."""
    return (user_home / name for name in (*FOLDERS, *FILES))


def read_by_a_session(user_home: Path) -> Iterable[Path]:
    """Return what may be looked at in the user's home and never changed."""
    return (user_home / name for name in SESSION_FILES)


def of_fermix(home: Home) -> Iterable[Path]:
    """Return what is closed of our own home by name; `roots.py` closes the rest as well."""
    database = (home.database.with_name(home.database.name + suffix) for suffix in DATABASE_SUFFIXES)
    ours = (home.config, home.auth, home.grants, home.logs, home.traces, home.daemon_socket, home.lock, home.run)
    previous = home.config.with_name(f"{home.config.name}.previous")
    return (*ours, previous, home.bootstrap, home.replaced, *database)


def of_the_system() -> Iterable[Path]:
    """Return what is closed of the system."""
    return map(Path, SYSTEM)


def folded(path: Path) -> str:
    """Return a name as the most forgiving file system compares it: neither letter case nor Unicode form counts."""
    return unicodedata.normalize("NFC", str(path).casefold())
