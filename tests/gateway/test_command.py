from __future__ import annotations

from dataclasses import replace

import pytest

from fermix.gateway.authorize import Authorization
from fermix.gateway.command import parse, why_refused
from fermix.gateway.commands.catalog import COMMANDS
from fermix.message import LocalOrigin
from fermix.trust import Trust
from tests.fakes.channel import message
from tests.requirements import covers

OWNER = Authorization(Trust.OPERATOR, commands=True)
COMMANDER = Authorization(Trust.GUEST, commands=True)
GUEST = Authorization(Trust.GUEST, commands=False)
ANYONE = {"help", "whoami"}
STRICT = {command.name for command in COMMANDS} & {"grant", "revoke", "confirm", "deny"}


@covers("command.recognised", "command.unknown-is-text")
@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ("/stop", "stop", ""),
        ("  /STOP  ", "stop", " "),
        ("/clear", "new", ""),
        ("/new two  words\nand a line", "new", "two  words\nand a line"),
        ("/stop@otherbot", None, ""),
        ("/stop@otherbot now", None, ""),
        ("/bg  look\n\n  here", "background", " look\n\n  here"),
        ("/stopx", None, ""),
        ("/etc/passwd", None, ""),
        ("/ stop", None, ""),
        ("say /stop", None, ""),
        ("/1", None, ""),
    ],
)
def test_a_command_is_its_name_and_the_raw_rest(text: str, name: str | None, rest: str) -> None:
    """Spec pipeline step 7; reference 3, section 5.1 and weak spot 2: the remainder is kept as it was typed."""
    found = parse(text, COMMANDS)

    assert (found[0].name, found[1]) == (name, rest) if found else name is None


def test_no_trigger_is_used_twice() -> None:
    triggers = [trigger for command in COMMANDS for trigger in (command.name, *command.aliases)]

    assert sorted(set(triggers)) == sorted(triggers)


def _allowed(sender: Authorization, *, attended: bool = True) -> set[str]:
    typed = replace(message("x"), origin=LocalOrigin(None, attended=attended))
    return {command.name for command in COMMANDS if why_refused(command, sender, typed) is None}


def test_who_may_run_what() -> None:
    """Issue 3, step 7: mutating commands by owner, sole entry or allow list; the strict set by the operator alone."""
    names = {command.name for command in COMMANDS}

    assert _allowed(OWNER) == names
    assert _allowed(COMMANDER) == names - STRICT
    assert _allowed(GUEST) == ANYONE


def test_nobody_speaks_for_the_owner_from_a_program_without_a_person() -> None:
    """Issue 3, approvals: stop, grants and approvals are refused to an unattended peer; R-19."""
    refused = {command.name for command in COMMANDS} - _allowed(OWNER, attended=False)

    assert refused == {"stop", "sandbox", *STRICT}


def test_a_command_can_be_run_or_says_what_is_missing() -> None:
    assert [command.name for command in COMMANDS if (command.run is None) != bool(command.missing)] == []
    assert {command.name for command in COMMANDS if command.run is None} == {
        "compact", "background", "tasks", "pause", "resume", "ultra",
    }  # fmt: skip
