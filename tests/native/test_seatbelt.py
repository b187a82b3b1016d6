"""The profile of macOS, read as the system reads it: the last rule that matches wins. It was never run there."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermix.native import confine, seatbelt
from fermix.native.confine import Behind, Kernel, Walls, forms, probe

HOME = Path("/Users/ada")
WALLS = Walls(
    read=(HOME / ".cargo",),
    write=(HOME / "work",),
    tmp=HOME / ".fermix/run/commands/t1",
    hide=(HOME / ".fermix", HOME / "work/keys/private"),
)
GOLDEN = f"""\
{seatbelt.ALWAYS}{seatbelt.NETWORK}\
(allow file-read-metadata (literal (param "P0")))
(allow file-read* file-map-executable process-exec* file-write* (subpath (param "P1")))
(allow file-read* file-map-executable process-exec* (subpath (param "P2")))
(deny file-write* (subpath (param "P2")))
(allow file-read* file-map-executable process-exec* file-write* (subpath (param "P3")))
(deny file* process-exec* network* (subpath (param "P4")))
(deny file-write-unlink (literal (param "P5")))
(deny file-write-setugid file-mknod)
"""
TOKEN = re.compile(r'\s*([()]|"(?:[^"\\]|\\.)*"|[^\s()"]+)')
Form: TypeAlias = "str | list[Form]"
names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..")
)
trees = st.lists(st.lists(st.one_of(st.sampled_from("ab"), names), min_size=1, max_size=4), max_size=6)


def parsed(text: str) -> list[Form]:
    """Read the profile by its grammar; what is left over or not closed is an error."""
    stack: list[list[Form]] = [[]]
    at = 0
    while text[at:].strip():
        match = TOKEN.match(text, at)
        assert match is not None, text[at:]
        at = match.end()
        token = match[1]
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    assert len(stack) == 1
    return stack[0]


class Profile:
    """What a command line of `sandbox-exec` lets a command do."""

    def __init__(self, line: list[str]) -> None:
        at = line.index("-p")
        pairs = line[1:at]
        assert pairs[::2] == ["-D"] * (len(pairs) // 2)
        self.parameters = dict(pair.split("=", 1) for pair in pairs[1::2])
        self.text = line[at + 1]
        self.command = line[at + 2 :]
        self.rules = [rule for rule in parsed(self.text) if rule[0] in ("allow", "deny")]

    def allows(self, operation: str, path: Path) -> bool:
        answer = "deny"
        for verdict, *rest in self.rules:
            operations = [one for one in rest if isinstance(one, str)]
            filters = [one for one in rest if not isinstance(one, str)]
            known = any(one == "default" or fnmatchcase(operation, one) for one in operations)
            if known and (not filters or any(self._matches(one, path) for one in filters)):
                answer = str(verdict)
        return answer == "allow"

    def _matches(self, one: Form, path: Path) -> bool:
        kind, value, *_ = one
        if kind not in ("subpath", "literal"):
            return False
        named = PurePath(self.parameters[value[1].strip('"')] if isinstance(value, list) else value.strip('"'))
        return path == named or (kind == "subpath" and path.is_relative_to(named))


def profile_of(walls: Walls) -> Profile:
    behind = Behind(walls, "seatbelt")
    with behind.report() as report:
        launch = behind.command(["/bin/sh", "-c", "true"], HOME, report)
    assert (launch.cwd, launch.passed) == (HOME, ())
    return Profile(list(launch.line))


def test_the_text_of_a_small_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seatbelt, "SYSTEM", ())
    line = seatbelt.command_line(
        ["true"],
        [(Path("/r"), "--read"), (Path("/w"), "--write"), (Path("/w/x/h"), "--hide")],
        tmp=Path("/t"),
        network=True,
    )

    profile = Profile(line)
    assert (profile.text, profile.command) == (GOLDEN, ["true"])
    assert line[0] == "/usr/bin/sandbox-exec"
    assert list(profile.parameters.values()) == ["/", "/t", "/r", "/w", "/w/x/h", "/w/x"]


@pytest.mark.parametrize(
    ("operation", "path", "allowed"),
    [
        ("file-read-data", HOME / "work/a/note", True),
        ("file-write-create", HOME / "work/a/note", True),
        ("process-exec", HOME / "work/a/tool", True),
        ("file-read-data", HOME / ".cargo/bin/cargo", True),
        ("file-write-data", HOME / ".cargo/bin/cargo", False),
        ("process-exec", Path("/usr/bin/git"), True),
        ("file-write-create", Path("/usr/bin/git"), False),
        ("file-read-data", HOME / ".ssh/id", False),
        ("file-read-metadata", HOME / ".ssh/id", False),
        ("file-read-metadata", HOME, True),
        ("file-read-data", HOME, False),
        ("file-read-data", HOME / "work/keys/private/id", False),
        ("file-link", HOME / "work/keys/private/id", False),
        ("file-read-metadata", HOME / "work/keys/private", False),
        ("file-write-unlink", HOME / "work/keys", False),
        ("file-write-unlink", HOME / "work/keys/other", True),
        ("file-read-data", HOME / ".fermix/auth.json", False),
        ("network-outbound", HOME / ".fermix/daemon.sock", False),
        ("file-write-create", HOME / ".fermix/run/commands/t1/x", True),
        ("file-read-data", HOME / ".fermix/run/commands/t2/x", False),
        ("file-write-data", Path("/dev/null"), True),
        ("file-write-data", Path("/dev/disk0"), False),
        ("file-read-data", Path("/dev/ttys001"), False),
        ("file-write-setugid", HOME / "work/tool", False),
    ],
)
def test_what_a_command_may_do(operation: str, path: Path, allowed: bool) -> None:
    """The same policy as on Linux."""
    assert profile_of(WALLS).allows(operation, path) is allowed


def test_the_network_is_a_set_of_rules_of_its_own() -> None:
    """Issue 4: network off for guests."""
    opened, closed = profile_of(WALLS), profile_of(replace(WALLS, network=False))

    assert "network-outbound (remote ip)" in opened.text
    assert not re.search(r"allow[^)]*network|system-socket|mDNSResponder|trustd", closed.text)


def test_only_named_services_of_the_system_are_in_reach() -> None:
    """A keychain, a clipboard or a launcher of programs would do anything for whoever asks."""
    lookups = re.findall(r'global-name "([^"]+)"', profile_of(WALLS).text)

    assert set(lookups) == {
        "com.apple.system.opendirectoryd.libinfo",
        "com.apple.system.opendirectoryd.membership",
        "com.apple.SystemConfiguration.configd",
        "com.apple.trustd.agent",
    }
    assert profile_of(WALLS).text.startswith("(version 1)\n(deny default)\n")


@given(opened=trees, hidden=trees, inner=trees)
def test_what_is_closed_is_closed_after_all_that_opens_around_it(
    opened: list[list[str]], hidden: list[list[str]], inner: list[list[str]]
) -> None:
    """For every path the innermost of what contains it decides, and a closed place wins over an open one."""
    root = Path("/Users/ada")
    write, hide, read = ({root.joinpath(*parts) for parts in lists} for lists in (opened, hidden, inner))
    walls = Walls(tuple(read), tuple(write), Path("/private/tmp/t"), tuple(hide))
    profile = profile_of(walls)
    for path in (*write, *hide, *read):
        around = [place for place in (path, *path.parents) if place in write | hide | read]
        innermost = around[0]
        assert profile.allows("file-read-data", path / "x") is (innermost not in hide)
        assert profile.allows("file-write-data", path / "x") is (innermost in write - hide)


@given(name=st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=30))
def test_no_name_can_add_a_rule(name: str) -> None:
    """Quotes, brackets and line breaks; the text is the same whatever a folder is called."""
    plain, odd = (
        profile_of(Walls((), (HOME / one,), Path("/t"), (HOME / one / "h",))) for one in ("plain", "x" + name)
    )

    assert odd.text == plain.text
    assert str(HOME / ("x" + name)) in odd.parameters.values()


def test_status_says_that_it_was_never_run() -> None:
    assert Kernel("seatbelt", offline=True).missing == ("the Seatbelt profile was never run on macOS",)


def test_each_system_has_its_own_forms() -> None:
    assert [forms(name) for name in ("linux", "darwin", "freebsd14")] == [("view", "rules"), ("seatbelt",), ()]


@pytest.mark.parametrize("platform", ["darwin", "freebsd14"])
def test_a_system_without_the_program_confines_nothing(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform == "darwin":
        pytest.skip("it has the program")
    monkeypatch.setattr(confine.sys, "platform", platform)
    kernel = probe(Walls((), (), tmp_path))

    assert (kernel.form, kernel.offline, kernel.missing) == (None, False, ())
    assert ("sandbox-exec" in kernel.problem) is (platform == "darwin")
