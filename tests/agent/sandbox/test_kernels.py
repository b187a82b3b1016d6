"""What is told and what strict mode does where a kernel lacks a part. The part is taken away from `confine` for real:
a filter of system calls stands between it and the kernel.
"""

from __future__ import annotations

import platform
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from fermix.agent.sandbox.walls import told
from fermix.errors import Refused
from fermix.native import confine
from fermix.native.confine import NO_VIEW, Form, Kernel
from tests.agent.sandbox.test_sandbox import NOWHERE, Machine, machine

__all__ = ["machine"]

X86 = platform.machine() == "x86_64"
CLONE, PRCTL, LANDLOCK_CREATE = (56, 157, 444) if X86 else (220, 167, 444)
NEW_USER, NEW_NETWORK, SECCOMP_OPTION = 0x10000000, 0x40000000, 22
EPERM, EINVAL, ENOSYS = 1, 22, 38
LOAD, EQUAL, ANY_BIT, ANSWER = 0x20, 0x15, 0x45, 0x06
REFUSE, ALLOW = 0x50000, 0x7FFF0000
WRAPPER = """#!{python} -I
import ctypes, os, sys
code = ctypes.create_string_buffer({code!r}, {length})
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
program = Program({length} // 8, ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execv({program!r}, [{program!r}, *sys.argv[1:]])
"""


@dataclass(frozen=True)
class Lack:
    """A system call that fails when its first argument has one of the bits, or is the value."""

    call: int
    error: int
    test: int = ANY_BIT
    value: int = 0xFFFFFFFF

    def code(self) -> bytes:
        steps = ((LOAD, 0, 0, 0), (EQUAL, 0, 3, self.call), (LOAD, 0, 0, 16), (self.test, 0, 1, self.value))
        return b"".join(struct.pack("HBBI", *step) for step in (*steps, (ANSWER, 0, 0, REFUSE | self.error)))


NO_LANDLOCK = (Lack(LANDLOCK_CREATE, ENOSYS, EQUAL, 0),)  # asked for its version, it has none
NO_NAMESPACES = (Lack(CLONE, EPERM, ANY_BIT, NEW_USER),)
NO_NETWORK_NAMESPACE = (Lack(CLONE, EPERM, ANY_BIT, NEW_NETWORK),)
NO_SECCOMP = (Lack(PRCTL, EINVAL, EQUAL, SECCOMP_OPTION),)


def lacking(parts: tuple[Lack, ...], folder: Path) -> Path:
    code = b"".join(part.code() for part in parts) + struct.pack("HBBI", ANSWER, 0, 0, ALLOW)
    wrapper = folder / "confine"
    text = WRAPPER.format(python=sys.executable, code=code, length=len(code), program=str(confine.PROGRAM))
    wrapper.write_text(text, encoding="utf-8")
    wrapper.chmod(0o755)
    return wrapper


@pytest.mark.parametrize(
    ("parts", "form", "offline", "words", "strict"),
    [
        ((), "view", True, "nothing but their folders", True),
        (NO_LANDLOCK, "view", True, "this kernel has no Landlock to say it twice", True),
        (NO_NETWORK_NAMESPACE, "view", False, "the network cannot be closed to them", True),
        (NO_NAMESPACES, "rules", True, NO_VIEW, False),
        (NO_NAMESPACES + NO_LANDLOCK, None, False, "not confined: the command cannot be confined: namespaces", False),
        (NO_SECCOMP, None, False, "not confined: the command cannot be confined: seccomp", False),
    ],
    ids=["whole", "no Landlock", "no network namespace", "no namespaces", "neither", "no seccomp"],
)
def test_what_a_kernel_lacks_is_told_and_strict_mode_does_not_run_without(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: tuple[Lack, ...], form: Form | None,
    offline: bool, words: str, strict: bool,
) -> None:  # fmt: skip
    """Issue 4, commands run confined; R-33: status says which one is active."""
    monkeypatch.setattr(confine, "PROGRAM", lacking(parts, tmp_path))
    sandbox = machine.sandbox(mode="strict")
    kernel = sandbox.kernel()

    assert (kernel.form, kernel.offline) == (form, offline)
    assert words in sandbox.walls()
    assert (kernel.landlock == 0) is (NO_LANDLOCK[0] in parts)
    if strict:
        assert sandbox.confined(NOWHERE).behind is not None
    else:
        with pytest.raises(Refused):
            sandbox.confined(NOWHERE)


def test_where_the_network_cannot_be_closed_nothing_runs_that_must_not_have_it(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 4: what would only hold TCP is no closed network."""
    monkeypatch.setattr(confine, "PROGRAM", lacking(NO_NETWORK_NAMESPACE, tmp_path))

    with pytest.raises(Refused) as refusal:
        machine.sandbox(network=False).confined(NOWHERE)
    assert refusal.value.user_text == (
        "Commands cannot be confined here: this system cannot close the network to a command"
    )


@pytest.mark.parametrize(
    ("landlock", "missing"),
    [
        (1, ["mode", "empty", "control", "signal"]),
        (3, ["mode", "control", "signal"]),
        (5, ["mode", "signal"]),
        (6, ["mode"]),
    ],
)
def test_rules_tell_what_an_older_landlock_does_not_hold(landlock: int, missing: list[str]) -> None:
    kernel = Kernel("rules", offline=True, problem="no namespaces", landlock=landlock)

    assert len(kernel.missing) == len(missing)
    assert all(word in what for word, what in zip(missing, kernel.missing, strict=True))
    assert all(what in told(kernel) for what in kernel.missing)


def test_the_profile_of_macos_is_told_to_be_unproven() -> None:
    assert told(Kernel("seatbelt", offline=True)) == (
        "confined by rules of the system; the Seatbelt profile was never run on macOS"
    )
