"""Which variables a command sees: an allow list, and what keeps programs from asking a person who is not there."""

from __future__ import annotations

from collections.abc import Mapping

from fermix.native.child import child_environment

ALLOWED_NAMES = ("PATH", "HOME", "USER", "LANG", "SHELL", "TMPDIR", "LC_*")
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
