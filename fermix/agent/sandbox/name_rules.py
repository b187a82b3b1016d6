"""Which variables may never reach a command and which programs may never be a command of their own.

Asked where the configuration is read, so that a wrong name is an error with its line, and where a change is proposed.
"""

from __future__ import annotations

import re
from pathlib import PurePath

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
COMMAND_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")

DEFAULT_NAMES = ("PATH", "HOME", "USER", "LANG", "SHELL", "TMPDIR", "LC_*")

# What makes a loader, a shell or an interpreter run code of somebody's choice before the program itself: rule R-40.
# The second line is the frozen program's own, which would lead a child into its files.
STEERING = (
    *("LD_", "DYLD_", "PYTHON", "GIT_", "NODE_", "PERL5", "RUBY", "BASH_", "GCONV_", "GLIBC_", "MALLOC_", "DOTNET_"),
    *("FERMIX_", "_MEIPASS", "_PYI_"),
)
STEERING_NAMES = frozenset(
    {"ENV", "SHELLOPTS", "BASHOPTS", "IFS", "PS4", "PROMPT_COMMAND", "ZDOTDIR", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
     "JDK_JAVA_OPTIONS", "PERLLIB", "LOCPATH", "LESSOPEN", "LESSCLOSE"}
)  # fmt: skip

# What a variable with such a name holds is hidden in outputs. Of another one (JAVA_HOME, TZ) it would eat the words.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH|COOKIE|DSN|DATABASE_URL|CONNECTION_STRING", re.IGNORECASE)

# Keys that Fermix is given for its channels; some owners export them, and no command needs one.
CHANNEL_KEYS = (
    *("TELEGRAM_BOT_TOKEN", "DISCORD_BOT_TOKEN", "SLACK_BOT_TOKEN", "SLACK_SIGNING_SECRET"),
    *("WHATSAPP_ACCESS_TOKEN", "WHATSAPP_VERIFY_TOKEN", "WHATSAPP_APP_SECRET"),
)

# What runs whatever it is given says nothing about what will run: rule R-23. A version may follow, as in python3.11.
WRAPPERS = frozenset(
    {*("env", "sudo", "doas", "su", "runuser", "pkexec", "setpriv", "chroot", "unshare", "nsenter", "systemd-run"),
     *("xargs", "parallel", "find", "nohup", "nice", "ionice", "setsid", "time", "timeout", "stdbuf", "watch"),
     *("script", "exec", "eval", "command", "busybox", "toybox", "at", "batch", "ssh", "tar", "strace", "gdb"),
     *("expect", "tmux", "screen", "docker", "podman", "flock", "chrt", "taskset", "prlimit", "capsh", "newgrp", "sg"),
     *("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "csh", "tcsh", "fish", "pwsh", "elvish", "nu"),
     *("python", "pypy", "node", "nodejs", "deno", "bun", "perl", "ruby", "php", "lua", "tclsh", "java", "npx"),
     *("awk", "gawk", "mawk", "sed", "ed", "ex", "vi", "vim", "nvim", "emacs", "osascript", "uvx", "crontab")}
)  # fmt: skip
_VERSION = re.compile(r"[-.]?\d[\d.]*$")


def why_never_passed(name: str) -> str | None:
    """Say why a variable cannot be passed to commands, whoever allows it; None when it can."""
    if ENV_NAME.fullmatch(name) is None:
        return "is no name of a variable: letters, digits and _"
    if name.startswith(STEERING) or name in STEERING_NAMES:
        return "decides what a program loads or runs, so it is never passed"
    return None


def names_a_secret(name: str) -> bool:
    """Say whether a variable is called like one that holds a secret."""
    return _SECRET.search(name) is not None


def why_no_command(program: str) -> str | None:
    """Say why a program cannot be a command of its own; None when it can. Judges by the name alone."""
    name = PurePath(program).name
    if name in WRAPPERS or _VERSION.sub("", name) in WRAPPERS:
        return f"{name} runs whatever it is given; that is what the tool `shell` is for"
    return None
