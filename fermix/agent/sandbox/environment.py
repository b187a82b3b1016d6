"""Which variables a tool's process sees: an allow list, and what keeps programs from asking a person not there."""

from __future__ import annotations

from collections.abc import Mapping

from fermix.native.child import child_environment
from fermix.native.program import own_variables

ALLOWED_NAMES = ("PATH", "HOME", "USER", "LANG", "SHELL", "TMPDIR", "LC_*")
OWN_NAMES = (*ALLOWED_NAMES, "XDG_CACHE_HOME")  # there the frozen program is unpacked already
UNATTENDED = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    "DEBIAN_FRONTEND": "noninteractive",
}


def command_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of a command; no key of ours is in it."""
    return {**child_environment(environ, ALLOWED_NAMES), **UNATTENDED}


def own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the whole environment of our own program, where a tool runs it in a process of its own."""
    return {**child_environment(environ, OWN_NAMES), **own_variables(environ)}
