"""The walls of a command on macOS: a Seatbelt profile, and the line that starts a command under it. For `confine.py`.

In a profile the last rule that matches wins, so rules follow each other from the outermost path to the innermost one.
No name of a file stands in its text: names are parameters of the command line, so that none can add a rule. What must
stay true: nothing is allowed that is not named here, and what is closed is closed after whatever opens around it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

Access = Literal["--read", "--write", "--hide"]

UNPROVEN = "the Seatbelt profile was never run on macOS"
PROGRAM = "/usr/bin/sandbox-exec"
SYSTEM = tuple(
    Path(text)
    for text in (
        "/System", "/Library/Apple", "/Library/Developer", "/usr", "/bin", "/sbin", "/private/etc",
        "/private/var/select", "/private/var/db/timezone", "/private/var/db/dyld", "/Applications/Xcode.app",
    )
)  # fmt: skip

ALWAYS = """\
(version 1)
(deny default)
(allow process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read (sysctl-name-prefix "hw.") (sysctl-name-prefix "kern.os") (sysctl-name "kern.argmax")
  (sysctl-name "kern.hostname") (sysctl-name "kern.maxfilesperproc") (sysctl-name "kern.ngroups")
  (sysctl-name "kern.usrstack64") (sysctl-name "kern.version") (sysctl-name "vm.loadavg"))
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership"))
(allow file-read* (literal "/"))
(allow file-read* file-write-data file-ioctl (literal "/dev/null") (literal "/dev/zero"))
(allow file-read* (literal "/dev/random") (literal "/dev/urandom"))
"""
NETWORK = """\
(allow system-socket (socket-domain AF_INET) (socket-domain AF_INET6))
(allow network-outbound (remote ip) (literal "/private/var/run/mDNSResponder"))
(allow network-inbound network-bind (local ip))
(allow mach-lookup (global-name "com.apple.SystemConfiguration.configd") (global-name "com.apple.trustd.agent"))
"""
LOOK = "file-read* file-map-executable process-exec*"
RULES: dict[Access, str] = {
    "--read": f"(allow {LOOK} (subpath (param {{}})))\n(deny file-write* (subpath (param {{}})))\n",
    "--write": f"(allow {LOOK} file-write* (subpath (param {{}})))\n",
    "--hide": "(deny file* process-exec* network* (subpath (param {})))\n",
}
PASS_THROUGH = "(allow file-read-metadata (literal (param {})))\n"
HOLD = "(deny file-write-unlink (literal (param {})))\n"
NEVER = "(deny file-write-setugid file-mknod)\n"


def command_line(argv: Sequence[str], paths: Iterable[tuple[Path, Access]], *, tmp: Path, network: bool) -> list[str]:
    """Return the line that runs `argv` under its profile; of two equal `paths` the last counts."""
    profile = _Profile(NETWORK if network else "")
    ours: list[tuple[Path, Access]] = [*((path, "--read") for path in SYSTEM), (tmp, "--write")]
    shown = sorted([*ours, *paths], key=lambda one: len(one[0].parts))  # as they come where they are equally deep
    for path in _above(path for path, access in shown if access != "--hide"):
        profile.add(PASS_THROUGH, path)
    for path, access in shown:
        profile.add(RULES[access], path)
    for path in _held(shown):
        profile.add(HOLD, path)
    return [PROGRAM, *profile.parameters, "-p", profile.text(), *argv]


class _Profile:
    def __init__(self, network: str) -> None:
        self.parameters: list[str] = []
        self._rules = [ALWAYS, network]

    def add(self, rule: str, path: Path) -> None:
        name = f"P{len(self.parameters) // 2}"
        self.parameters += ["-D", f"{name}={path}"]
        self._rules.append(rule.replace("{}", f'"{name}"'))

    def text(self) -> str:
        return "".join([*self._rules, NEVER])


def _above(paths: Iterable[Path]) -> list[Path]:
    """Every folder on the way to what is open: a program asks for it to find out where it is."""
    return sorted({folder for path in paths for folder in path.parents})


def _held(shown: Collection[tuple[Path, Access]]) -> list[Path]:
    """The open folders that something closed lies in: under another name its rule would not find it."""
    opened = {path for path, access in shown if access == "--write"}
    above_closed = _above(path for path, access in shown if access == "--hide")
    return [folder for folder in above_closed if not opened.isdisjoint(folder.parents)]
